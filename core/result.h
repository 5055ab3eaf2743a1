// How things fail: fallible functions return Result<T>; a programmer's mistake trips LH_CHECK.
//
// An Error says what is wrong in one sentence, where (file, line, column) when a file is to blame,
// and what to try when the cure is known. Context is added on the way up with `within`.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul {

/// A code exists only where some caller acts differently on it: it is the process exit status.
enum class ErrorCode {
  kFailed = 1,      // something failed while running
  kInvalid = 2,     // wrong usage or wrong input
  kInfeasible = 3,  // the question is well put and the honest answer is no
};

/// A place in a text that a person wrote. Line and column count from 1; 0 means unknown.
struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;

  /// "file:line:column", with the unknown parts left out.
  std::string text() const;
};

struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
  std::string hint;           // what to try; empty when no cure is known
  SourcePlace place;          // empty file: no file is to blame
  std::string excerpt;        // the line of the file with a caret below the column; may be empty
  std::vector<Error> others;  // further errors of the same file, reported together

  /// The error as a person reads it, all `others` included, without a trailing newline.
  std::string text() const;
  /// Number of errors that text() shows.
  std::size_t count() const { return 1 + others.size(); }
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> invalid(std::string message, std::string hint = "") {
  return std::unexpected(
      Error{ErrorCode::kInvalid, std::move(message), std::move(hint), {}, "", {}});
}
/// The file, or the line of it, at `place` is wrong.
inline std::unexpected<Error> invalid_at(SourcePlace place, std::string message,
                                         std::string hint = "") {
  return std::unexpected(
      Error{ErrorCode::kInvalid, std::move(message), std::move(hint), std::move(place), "", {}});
}
inline std::unexpected<Error> failed(std::string message, std::string hint = "") {
  return std::unexpected(
      Error{ErrorCode::kFailed, std::move(message), std::move(hint), {}, "", {}});
}
inline std::unexpected<Error> infeasible(std::string message, std::string hint = "") {
  return std::unexpected(
      Error{ErrorCode::kInfeasible, std::move(message), std::move(hint), {}, "", {}});
}
/// The same error with "context: " before its message.
std::unexpected<Error> within(std::string_view context, Error error);

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view why);

}  // namespace longhaul

/// Stops the program when a promise between two pieces of our own code is broken. Input never
/// trips one: input is refused with an Error.
#define LH_CHECK(condition, why)                                                     \
  do {                                                                               \
    if (!(condition)) ::longhaul::check_failed(__FILE__, __LINE__, #condition, why); \
  } while (false)

#define LH_CONCAT_INNER(a, b) a##b
#define LH_CONCAT(a, b) LH_CONCAT_INNER(a, b)
/// LH_ASSIGN(auto cluster, load(path)); returns the error from the enclosing function, or binds.
#define LH_ASSIGN(target, expression) \
  LH_ASSIGN_INNER(LH_CONCAT(lh_result_, __LINE__), target, expression)
#define LH_ASSIGN_INNER(name, target, expression)             \
  auto name = (expression);                                   \
  if (!name) return std::unexpected(std::move(name).error()); \
  target = std::move(*name)
/// LH_TRY(check(x)); returns the error of a Result<void> from the enclosing function.
#define LH_TRY(expression)                                  \
  do {                                                      \
    if (auto lh_status = (expression); !lh_status)          \
      return std::unexpected(std::move(lh_status).error()); \
  } while (false)
