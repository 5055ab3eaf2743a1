#include "executor/data/block_encoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace longhaul {
namespace {

void start_document(Tokenizer& tokenizer, EncodedBlock& out) {
  ++out.documents;
  if (const auto end_of_text = tokenizer.end_of_text()) out.tokens.push_back(*end_of_text);
}

void forget_document(const Tokenizer& tokenizer, EncodedBlock& out) {
  --out.documents;
  if (tokenizer.end_of_text()) out.tokens.pop_back();
}

EncodedBlock encode_text(const TextBlock& block, std::size_t from, Tokenizer& tokenizer) {
  EncodedBlock out;
  const bool has_documents = tokenizer.end_of_text().has_value();
  std::string_view text = block.text;
  // What is left may end with the start of a separator.
  if (has_documents && !block.ends_input) text.remove_suffix(kDocumentSeparator.size() - 1);
  bool starts = block.starts_document && from == 0;
  std::size_t at = from;
  while (at < block.size) {
    const std::size_t separator = has_documents ? text.find(kDocumentSeparator, at) : text.npos;
    const std::size_t end = std::min(separator, text.size());
    const bool ends = separator != text.npos || block.ends_input;
    if (end > at) {
      if (starts) start_document(tokenizer, out);
      const std::size_t taken =
          tokenizer.encode(text.substr(at, end - at), {starts, ends, block.size - at}, out.tokens);
      if (taken == 0 && starts) forget_document(tokenizer, out);
      out.left_starts = taken == 0 && starts;
      at += taken;
      starts = false;
      if (at < end) break;  // the block's end, or what follows must be seen
    }
    if (separator == text.npos || at >= block.size) break;
    at += kDocumentSeparator.size();
    starts = true;
  }
  out.end = at;
  out.text_bytes = static_cast<std::int64_t>(block.size);
  return out;
}

/// What is wrong with a line, or nothing; its text is encoded.
std::optional<EncodedBlock::BadLine> encode_line(std::string_view line, const std::string& field,
                                                 Tokenizer& tokenizer, EncodedBlock& out) {
  if (line.find_first_not_of(" \t\r") == line.npos) return std::nullopt;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    return EncodedBlock::BadLine{0, fmt::format("not JSON, at byte {} of the line", error.byte),
                                 "each line is an object, as {\"text\": \"...\"}"};
  } catch (const nlohmann::json::out_of_range&) {
    return EncodedBlock::BadLine{0, "a number is too large", ""};
  }
  if (!json.is_object()) {
    return EncodedBlock::BadLine{0, "not a JSON object",
                                 "each line is an object, as {\"text\": \"...\"}"};
  }
  const auto found = json.find(field);
  if (found == json.end()) {
    std::string fields;
    for (const auto& [name, value] : json.items()) fields += (fields.empty() ? "" : ", ") + name;
    return EncodedBlock::BadLine{0, fmt::format("there is no field `{}`", field),
                                 fmt::format("--field names the one with the text; here are {}",
                                             fields.empty() ? "none" : fields.substr(0, 200))};
  }
  if (!found->is_string()) {
    return EncodedBlock::BadLine{0, fmt::format("the field `{}` is not a text", field), ""};
  }
  const auto& text = found->get_ref<const std::string&>();
  out.text_bytes += std::ssize(text);
  if (text.empty()) return std::nullopt;
  start_document(tokenizer, out);
  tokenizer.encode(text, {}, out.tokens);
  return std::nullopt;
}

EncodedBlock encode_json_lines(const TextBlock& block, const std::string& field,
                               Tokenizer& tokenizer) {
  EncodedBlock out;
  const std::string_view text = block.text;
  while (out.end < text.size()) {
    const std::string_view line = text.substr(out.end, text.find('\n', out.end) - out.end);
    out.bad_line = encode_line(line, field, tokenizer, out);
    if (out.bad_line) {
      out.bad_line->begin = out.end;
      return out;
    }
    out.end += line.size() + 1;
  }
  out.end = text.size();
  return out;
}

}  // namespace

EncodedBlock encode_block(const TextBlock& block, std::size_t from, const std::string& field,
                          Tokenizer& tokenizer) {
  if (block.is_json_lines) return encode_json_lines(block, field, tokenizer);
  return encode_text(block, from, tokenizer);
}

BlockEncoders::BlockEncoders(int threads, std::string field, const Tokenizer& tokenizer)
    : field_(std::move(field)), jobs_max_(threads > 1 ? 2 * static_cast<std::size_t>(threads) : 1) {
  for (int i = 0; i < threads; ++i) tokenizers_.push_back(tokenizer.clone());
  if (threads == 1) return;
  for (const auto& own : tokenizers_) threads_.emplace_back([this, &own] { run(*own); });
}

BlockEncoders::~BlockEncoders() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockEncoders::give(TextBlock block) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::make_unique<Job>(Job{std::move(block)}));
  }
  changed_.notify_all();
}

BlockEncoders::Done BlockEncoders::take() {
  std::unique_lock lock(mutex_);
  if (threads_.empty()) {
    Job& job = *jobs_.front();
    job.encoded = encode_block(job.block, 0, field_, *tokenizers_[0]);
  } else {
    changed_.wait(lock, [&] { return jobs_.front()->done; });
    --started_;
  }
  const std::unique_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  return {std::move(job->block), std::move(job->encoded)};
}

void BlockEncoders::run(Tokenizer& tokenizer) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || started_ < jobs_.size(); });
    if (stopping_) return;
    Job& job = *jobs_[started_++];
    lock.unlock();
    job.encoded = encode_block(job.block, 0, field_, tokenizer);
    lock.lock();
    job.done = true;
    changed_.notify_all();
  }
}

}  // namespace longhaul
