#include "executor/run/file_transfer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "executor/control/messages.h"

namespace longhaul {

void QueueRunner::run(std::uint64_t tag, std::move_only_function<Result<void>()> work,
                      std::move_only_function<void(Result<void>)> then) const {
  // The queue's own failures stay with the device for ever; a full disk does not.
  // Owners: the work and its completion.
  auto outcome = std::make_shared<Result<void>>();
  queue->submit(stream,
                {.tag = tag, .run = [outcome, w = std::move(work)]() mutable -> Result<void> {
                   *outcome = w();
                   return {};
                 }});
  queue->notify(stream, [outcome, t = std::move(then)](Result<void> device) mutable {
    t(device ? std::move(*outcome) : std::move(device));
  });
}

std::string checkpoints_root(const std::string& folder) {
  return folder + "/checkpoints";
}

FileFetch::FileFetch(Options options, OnDone done)
    : options_(std::move(options)), done_(std::move(done)) {}

std::string FileFetch::folder() const {
  return options_.root + "/" + folder_name(options_.checkpoint);
}

std::string FileFetch::name_meanwhile() const {
  return fmt::format("rank-{}.{}", options_.rank, options_.files[at_].file.name);
}

void FileFetch::run(std::move_only_function<Result<void>()> work,
                    std::move_only_function<void(Result<void>)> then) {
  options_.runner.run(kStorageTag, std::move(work),
                      [alive = std::weak_ptr(alive_), t = std::move(then)](Result<void> r) mutable {
                        if (!alive.expired()) t(std::move(r));
                      });
}

void FileFetch::next() {
  if (at_ == options_.files.size()) return finish({});
  look(options_.files[at_]);
}

/// A file that is here already and right is not fetched.
void FileFetch::look(const WantedFile& wanted) {
  run([storage = options_.storage, at = folder(),
       file = wanted.file] { return verify_file(*storage, at, file); },
      [this](const Result<void>& right) {
        if (right) {
          ++at_;
          return next();
        }
        ++fetched_;
        offset_ = 0;
        receiving_ = std::make_shared<std::optional<ReceivedFile>>();
        CheckpointFile file = options_.files[at_].file;
        file.name = name_meanwhile();
        run(
            [storage = options_.storage, at = folder(), file = std::move(file),
             into = receiving_]() -> Result<void> {
              LH_TRY(make_folders(*storage, at));
              LH_ASSIGN(ReceivedFile received, ReceivedFile::create(*storage, at, file));
              into->emplace(std::move(received));
              return {};
            },
            [this](Result<void> created) {
              if (!created) return finish(std::move(created));
              fetch_piece();
            });
      });
}

void FileFetch::fetch_piece() {
  const WantedFile& wanted = options_.files[at_];
  const std::uint64_t left = wanted.file.bytes - offset_;
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left, kAnswerBytesMax));
  const std::string what = fmt::format("file folder={} name={} offset={}",
                                       folder_name(options_.checkpoint), wanted.file.name, offset_);
  options_.requests->ask(
      wanted.holder, what, bytes,
      [this, alive = std::weak_ptr(alive_)](Result<std::vector<std::byte>> piece) {
        if (alive.expired()) return;
        if (!piece) {
          return finish(within(options_.files[at_].file.name, std::move(piece).error()));
        }
        add_piece(*std::move(piece));
      });
}

void FileFetch::add_piece(std::vector<std::byte> piece) {
  offset_ += piece.size();
  const bool is_last = offset_ == options_.files[at_].file.bytes;
  run(
      [into = receiving_, is_last, storage = options_.storage, at = folder(),
       meanwhile = name_meanwhile(), name = options_.files[at_].file.name,
       bytes = std::move(piece)]() -> Result<void> {
        LH_TRY((*into)->append(bytes));
        if (!is_last) return {};
        LH_TRY((*into)->commit());
        // Over that of another worker, if that was faster: it is the same.
        LH_TRY(storage->rename(at + "/" + meanwhile, at + "/" + name));
        return storage->sync_folder(at);
      },
      [this, is_last](Result<void> added) {
        if (!added) return finish(std::move(added));
        if (!is_last) return fetch_piece();
        receiving_ = nullptr;
        ++at_;
        next();
      });
}

void FileFetch::finish(Result<void> result) {
  auto done = std::move(done_);
  done(std::move(result));
}

std::optional<FilePiece> parse_file_piece(std::string_view what) {
  const auto take = [&what](std::string_view key) -> std::optional<std::string> {
    if (!what.starts_with(key)) return std::nullopt;
    what.remove_prefix(key.size());
    const std::string_view value = what.substr(0, what.find(' '));
    what.remove_prefix(std::min(value.size() + 1, what.size()));
    return std::string(value);
  };
  const auto folder = take("file folder=");
  const auto name = folder ? take("name=") : std::nullopt;
  const auto offset = name ? take("offset=") : std::nullopt;
  FilePiece piece;
  if (!offset || !what.empty() || !parse_whole(*offset, ~std::uint64_t{0}, piece.offset)) {
    return std::nullopt;
  }
  piece.folder = *folder;
  piece.name = *name;
  return piece;
}

Result<std::vector<std::byte>> read_file_piece(Storage& storage, const std::string& root,
                                               const FilePiece& piece, std::size_t bytes) {
  // A peer names a file of a checkpoint, never a path.
  const bool plain = piece.name.find('/') == std::string::npos && !piece.name.starts_with('.');
  if (!parse_folder_name(piece.folder) || !plain) return failed("no file of a checkpoint");
  LH_ASSIGN(const auto file, storage.open(root + "/" + piece.folder + "/" + piece.name));
  // Before memory is taken for it.
  if (piece.offset > file->size() || bytes > file->size() - piece.offset) {
    return failed(fmt::format("{} has only {} bytes", piece.name, file->size()));
  }
  std::vector<std::byte> answer(bytes);
  LH_TRY(file->read(piece.offset, answer));
  return answer;
}

void serve_file_piece(const QueueRunner& runner, Storage& storage, const std::string& root,
                      const std::string& what, std::size_t bytes, MeshRequests::Answer answer) {
  const std::optional<FilePiece> piece = parse_file_piece(what);
  if (!piece) return answer(failed("nothing of this kind is here"));
  // Owners: the work and its completion.
  auto read = std::make_shared<std::vector<std::byte>>();
  runner.run(
      kStorageTag,
      [&storage, root, piece, bytes, read]() -> Result<void> {
        LH_ASSIGN(*read, read_file_piece(storage, root, *piece, bytes));
        return {};
      },
      [read, a = std::move(answer)](Result<void> result) mutable {
        if (!result) return a(std::unexpected(std::move(result).error()));
        a(std::move(*read));
      });
}

}  // namespace longhaul
