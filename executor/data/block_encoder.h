// Blocks of text to tokens, in parallel and in order. The tokens are those of the whole documents,
// however they were cut into blocks: a block is encoded as if a piece began at its start, and where
// that turns out wrong (the block before ends in the middle of a piece) it is encoded again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "executor/data/text_inputs.h"
#include "executor/data/tokenizer.h"

namespace longhaul {

struct EncodedBlock {
  std::vector<Token> tokens;
  std::int64_t documents = 0;   // that start in it
  std::int64_t text_bytes = 0;  // of the block without what another block took
  std::size_t end = 0;          // bytes of the block's text that the tokens cover
  bool left_starts = false;     // a document starts there, and the end is in the block
  /// A line that is no JSON object with a text in the field: where it starts in the block, and why.
  struct BadLine {
    std::size_t begin;
    std::string what;
    std::string hint;
  };
  std::optional<BadLine> bad_line = {};
};

/// Encodes a block from byte `from` on. A document that does not start with the block and begins at
/// `from` goes on there.
EncodedBlock encode_block(const TextBlock& block, std::size_t from, const std::string& field,
                          Tokenizer& tokenizer);

/// Threads that encode blocks. Used by one thread, which gets the blocks back in the order in which
/// it gave them.
class BlockEncoders {
 public:
  /// With one thread blocks are encoded when they are taken, by the caller.
  BlockEncoders(int threads, std::string field, const Tokenizer& tokenizer);
  BlockEncoders(const BlockEncoders&) = delete;
  BlockEncoders& operator=(const BlockEncoders&) = delete;
  ~BlockEncoders();

  /// Whether another block should be given before one is taken.
  bool wants_more() const { return jobs_.size() < jobs_max_; }
  bool empty() const { return jobs_.empty(); }
  void give(TextBlock block);
  struct Done {
    TextBlock block;
    EncodedBlock encoded;
  };
  /// The oldest block; waits for it.
  Done take();

 private:
  struct Job {
    TextBlock block;
    EncodedBlock encoded = {};
    bool done = false;
  };
  void run(Tokenizer& tokenizer);

  std::string field_;
  std::size_t jobs_max_;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers_;  // of each thread
  std::mutex mutex_;
  std::condition_variable changed_;
  // Jobs stay where they are while a thread works on one: a deque moves none.
  std::deque<std::unique_ptr<Job>> jobs_;
  std::size_t started_ = 0;  // of jobs_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul
