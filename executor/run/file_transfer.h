// Files of checkpoints between ranks: whoever needs one and has it not, or not right, asks for its
// pieces (mesh_requests.h) and has it once all of it is here and its hash is right.
//
//   file folder=term-000001-step-000000100 name=head.safetensors offset=0
//
// Files are read and written on the queue, where blocking is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/checkpoint/layer_files.h"
#include "executor/checkpoint/manifest.h"
#include "executor/run/mesh_requests.h"
#include "executor/storage/storage.h"
#include "kernels/compute_queue.h"

namespace longhaul {

/// Work on a queue, and then something on the loop.
struct QueueRunner {
  ComputeQueue* queue = nullptr;
  StreamId stream{};
  /// `then` gets the error of the work or of the device. It must not be called once its owner is
  /// gone: it looks for itself.
  void run(std::uint64_t tag, std::move_only_function<Result<void>()> work,
           std::move_only_function<void(Result<void>)> then) const;
};
/// Tags of a worker's work besides its instructions.
inline constexpr std::uint64_t kStorageTag = std::uint64_t{1} << 33;
inline constexpr std::uint64_t kPrepareTag = (std::uint64_t{1} << 33) + 1;
inline constexpr std::uint64_t kUpdateTag = (std::uint64_t{1} << 33) + 2;

/// Where checkpoints lie below a run's folder.
std::string checkpoints_root(const std::string& folder);

struct WantedFile {
  CheckpointFile file;
  int holder = 0;  // rank
};

/// Gets files into a folder, one after another. Belongs to the loop's thread.
class FileFetch {
 public:
  struct Options {
    QueueRunner runner;
    Storage* storage = nullptr;
    MeshRequests* requests = nullptr;
    std::string root;  // of the checkpoints
    int rank = 0;      // of who fetches: workers of a node share its folder, and fetch at a time
    CheckpointId checkpoint;
    std::vector<WantedFile> files;
  };
  using OnDone = std::move_only_function<void(Result<void>)>;

  /// `done` is not called once this is destroyed.
  FileFetch(Options options, OnDone done);
  FileFetch(const FileFetch&) = delete;
  FileFetch& operator=(const FileFetch&) = delete;
  void start() { next(); }

  std::size_t fetched() const { return fetched_; }  // files that were not there

 private:
  void next();
  void look(const WantedFile& wanted);
  void fetch_piece();
  void add_piece(std::vector<std::byte> piece);
  void finish(Result<void> result);
  std::string folder() const;
  /// A name of this rank's own, for the file at hand until it is whole.
  std::string name_meanwhile() const;
  /// On the queue, and then on the loop if this is still there.
  void run(std::move_only_function<Result<void>()> work,
           std::move_only_function<void(Result<void>)> then);

  Options options_;
  OnDone done_;
  std::size_t at_ = 0;  // in files
  std::uint64_t offset_ = 0;
  std::size_t fetched_ = 0;
  // Owners: this and the work that writes it.
  std::shared_ptr<std::optional<ReceivedFile>> receiving_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // owned here alone
};

/// What a question for a piece of a file asks for; none when it is another question.
struct FilePiece {
  std::string folder;
  std::string name;
  std::uint64_t offset = 0;
};
std::optional<FilePiece> parse_file_piece(std::string_view what);
/// Reads it. Blocks.
Result<std::vector<std::byte>> read_file_piece(Storage& storage, const std::string& root,
                                               const FilePiece& piece, std::size_t bytes);

/// Answers a question for a piece, read on the queue; any other question with an error. The storage
/// outlives the queue's work.
void serve_file_piece(const QueueRunner& runner, Storage& storage, const std::string& root,
                      const std::string& what, std::size_t bytes, MeshRequests::Answer answer);

}  // namespace longhaul
