#include "executor/run/text_generator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/config_errors.h"

namespace longhaul {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// ---- choosing

/// Whether `a` is the likelier of two ids.
auto likelier_in(std::span<const float> logits) {
  return [logits](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
}

/// How many of the first ids have `share` of the weight of all; at least one.
template <class Weight>
std::size_t nucleus_size(std::span<const std::size_t> ids, const Weight& weight, double share) {
  double sum = 0;
  for (const std::size_t id : ids) sum += weight(id);
  double passed = 0;
  std::size_t size = 0;
  while (size < ids.size() && passed < share * sum) passed += weight(ids[size++]);
  return size;
}

/// Bytes of `text[at...]` that begin a character and may be completed by what follows; 0 when they
/// cannot.
std::size_t unfinished_size(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  const std::size_t size = text.size() - at;
  if (size >= wanted) return 0;
  // Completed by the smallest or the largest bytes that may follow: the second byte of some
  // characters has a narrower range than 80 to BF.
  for (const char filler : {'\x80', '\xbf'}) {
    std::string whole(text.substr(at));
    whole.resize(wanted, filler);
    if (utf8_size(whole, 0) == wanted) return size;
  }
  return 0;
}

}  // namespace

Result<Token> choose_token(std::span<const float> logits, const Sampling& sampling, Rng& rng) {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    return failed("the model answers with numbers that are not finite",
                  "its training diverged; take an older checkpoint");
  }
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const auto likelier = likelier_in(logits);
  const std::size_t best = *std::ranges::min_element(ids, likelier);
  if (sampling.temperature == 0) return static_cast<Token>(best);

  // Relative to the largest, so that nothing overflows and a sum is at least 1.
  const auto weight = [&](std::size_t id) {
    return std::exp((double{logits[id]} - double{logits[best]}) / sampling.temperature);
  };
  const auto top_k = static_cast<std::size_t>(sampling.top_k);
  if (top_k > 0 && top_k < ids.size()) {
    std::ranges::nth_element(ids, ids.begin() + static_cast<std::ptrdiff_t>(top_k), likelier);
    ids.resize(top_k);
  }
  if (sampling.top_p < 1) {
    std::ranges::sort(ids, likelier);
    ids.resize(nucleus_size(ids, weight, sampling.top_p));
  }
  std::ranges::sort(ids);  // nth_element's order is not the same everywhere
  double sum = 0;
  for (const std::size_t id : ids) sum += weight(id);
  const double drawn = rng.uniform() * sum;
  double passed = 0;
  for (const std::size_t id : ids) {
    passed += weight(id);
    if (drawn < passed) return static_cast<Token>(id);
  }
  return static_cast<Token>(best);  // drawn was rounded up to the sum
}

TextGenerator::TextGenerator(ModelStage stage, std::int64_t choices, const Sampling& sampling)
    : decoder_(std::move(stage)),
      choices_(choices),
      sampling_(sampling),
      rng_("generate", sampling.seed) {
  LH_CHECK(choices >= 1 && choices <= decoder_.model().vocabulary, "ids are the model's");
}

void TextGenerator::begin_sample(int number) {
  rng_ = number == 0 ? Rng("generate", sampling_.seed)
                     : Rng(fmt::format("generate sample {}", number), sampling_.seed);
}

Result<Token> TextGenerator::next(std::span<const Token> text) {
  LH_CHECK(!text.empty(), "the model needs a token to begin with");
  const auto context = static_cast<std::size_t>(decoder_.model().context);
  const std::span<const Token> seen = text.last(std::min(text.size(), context));
  const bool goes_on =
      read_.size() < seen.size() && std::ranges::equal(read_, seen.first(read_.size()));
  if (!goes_on) {
    decoder_.reset();
    read_.clear();
  }
  const std::span<const Token> unread = seen.subspan(read_.size());
  const std::span<const float> logits = decoder_.feed(unread);
  read_.insert(read_.end(), unread.begin(), unread.end());
  return choose_token(logits.first(static_cast<std::size_t>(choices_)), sampling_, rng_);
}

// ---- text

std::string Utf8Stream::take(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  std::size_t at = 0;
  while (at < held_.size()) {
    if (const std::size_t size = utf8_size(held_, at); size > 0) {
      text.append(held_, at, size);
      at += size;
    } else if (unfinished_size(held_, at) > 0) {
      break;
    } else {
      text += kReplacement;
      ++at;
    }
  }
  held_.erase(0, at);
  return text;
}

std::string Utf8Stream::finish() {
  const bool waiting = !std::exchange(held_, "").empty();
  return std::string(waiting ? kReplacement : "");
}

}  // namespace longhaul
