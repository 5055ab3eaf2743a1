#include "executor/data/bigram.h"

#include <algorithm>
#include <cmath>

namespace longhaul {
namespace {

std::size_t index_of(Token token) {
  return static_cast<std::size_t>(token);
}

std::uint64_t key_of(Token first, Token second) {
  return static_cast<std::uint64_t>(first) << 32 | (static_cast<std::uint64_t>(second) + 1);
}

}  // namespace

BigramModel::BigramModel(std::int64_t vocabulary)
    : counts_(static_cast<std::size_t>(vocabulary)),
      followed_(counts_.size()),
      followers_(counts_.size()),
      pairs_(std::size_t{1} << 16) {}

std::size_t BigramModel::place_of(Token first, Token second) const {
  const std::uint64_t key = key_of(first, second);
  std::size_t place = (key * 0x9e3779b97f4a7c15u >> 20) & (pairs_.size() - 1);
  while (pairs_[place].key != 0 && pairs_[place].key != key) {
    place = (place + 1) & (pairs_.size() - 1);
  }
  return place;
}

void BigramModel::grow() {
  std::vector<Pair> old(2 * pairs_.size());
  std::swap(old, pairs_);
  for (const Pair& pair : old) {
    if (pair.key == 0) continue;
    const auto second = static_cast<Token>((pair.key & 0xffffffffu) - 1);
    pairs_[place_of(static_cast<Token>(pair.key >> 32), second)] = pair;
  }
}

void BigramModel::count(std::span<const Token> tokens) {
  tokens = tokens.first(std::min(
      tokens.size(), static_cast<std::size_t>(std::max<std::int64_t>(kTokensMax - counted_, 0))));
  counted_ += std::ssize(tokens);
  for (const Token token : tokens) {
    ++counts_[index_of(token)];
    if (previous_) {
      Pair& pair = pairs_[place_of(*previous_, token)];
      ++followed_[index_of(*previous_)];
      if (pair.key == 0) {
        pair.key = key_of(*previous_, token);
        ++followers_[index_of(*previous_)];
        ++pairs_used_;
      }
      ++pair.count;
      if (3 * pairs_used_ > 2 * pairs_.size()) grow();
    }
    previous_ = token;
  }
}

void BigramModel::measure(std::span<const Token> tokens) {
  const double all = static_cast<double>(counted_) + static_cast<double>(counts_.size());
  for (const Token token : tokens) {
    if (previous_measured_) {
      const std::size_t first = index_of(*previous_measured_);
      const double unigram = (counts_[index_of(token)] + 1.0) / all;
      const double followers = followers_[first];
      const double seen = pairs_[place_of(*previous_measured_, token)].count;
      // A token that never had a follower says nothing about the next one.
      const double bigram =
          followers == 0 ? unigram : (seen + followers * unigram) / (followed_[first] + followers);
      sum_.unigram -= std::log(unigram);
      sum_.bigram -= std::log(bigram);
      ++sum_.targets;
    }
    previous_measured_ = token;
  }
}

std::optional<BigramModel::Loss> BigramModel::loss() const {
  if (counted_ == 0 || sum_.targets == 0) return std::nullopt;
  const auto targets = static_cast<double>(sum_.targets);
  return Loss{sum_.bigram / targets, sum_.unigram / targets, sum_.targets};
}

}  // namespace longhaul
