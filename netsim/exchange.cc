#include "netsim/exchange.h"

#include <algorithm>
#include <map>

namespace longhaul {
namespace {

/// Members 0 .. D-1 join at points 0 .. D-1 and are done at points D .. 2D-1.
class Builder {
 public:
  Builder(int members, double elements) : members_(members), elements_(elements) {
    for (int i = 0; i < members; ++i) graph_.points.push_back({.waits = 1});
    for (int i = 0; i < members; ++i) graph_.points.push_back({.member = i});
  }

  int joined(int member) const { return member; }
  int done(int member) const { return members_ + member; }

  int add_point() {
    graph_.points.emplace_back();
    return static_cast<int>(graph_.points.size()) - 1;
  }

  /// `after` lets the elements go, and their arrival is a step of `next`. From a member to itself
  /// nothing travels.
  void send(int after, int from, int to, double elements, int next) {
    if (from == to) return step(after, next);
    ++at(next).waits;
    at(after).messages.push_back({from, to, elements, next});
  }
  void step(int after, int next) {
    ++at(next).waits;
    at(after).next.push_back(next);
  }

  /// Member i of `group` has something to add once `ready[i]` is there; the arrivals of the sums
  /// of all shards are steps of its `result[i]`.
  void sharded(const std::vector<int>& group, const std::vector<int>& ready,
               const std::vector<int>& result, double elements, const std::vector<double>& shares) {
    const std::size_t count = group.size();
    std::vector<int> sums(count, -1);
    for (std::size_t owner = 0; owner < count; ++owner) {
      if (shares[owner] > 0) sums[owner] = add_point();
    }
    // From the next member on, so that not all begin with the same one.
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 1; k <= count; ++k) {
        const std::size_t owner = (i + k) % count;
        if (sums[owner] < 0) continue;
        send(ready[i], group[i], group[owner], shares[owner] * elements, sums[owner]);
      }
    }
    for (std::size_t owner = 0; owner < count; ++owner) {
      if (sums[owner] < 0) continue;
      for (std::size_t k = 1; k <= count; ++k) {
        const std::size_t i = (owner + k) % count;
        send(sums[owner], group[owner], group[i], shares[owner] * elements, result[i]);
      }
    }
  }

  void whole_group_sharded(std::vector<double> shares) {
    const auto count = static_cast<std::size_t>(members_);
    if (shares.empty()) shares.assign(count, 1.0 / members_);
    std::vector<int> group, ready, result;
    for (int i = 0; i < members_; ++i) {
      group.push_back(i);
      ready.push_back(joined(i));
      result.push_back(done(i));
    }
    sharded(group, ready, result, elements_, shares);
  }

  void ring() {
    const int steps = 2 * (members_ - 1);
    // ready[i]: member i has what it sends in this step.
    std::vector<int> ready;
    for (int i = 0; i < members_; ++i) ready.push_back(joined(i));
    for (int step_number = 0; step_number < steps; ++step_number) {
      std::vector<int> arrived;
      for (int i = 0; i < members_; ++i) arrived.push_back(add_point());
      for (int i = 0; i < members_; ++i) {
        const int to = (i + 1) % members_;
        const auto index = static_cast<std::size_t>(to);
        send(ready[static_cast<std::size_t>(i)], i, to, elements_ / members_, arrived[index]);
        // Up to the last addition its own gradient has to be there, too.
        if (step_number < members_ - 1) step(joined(to), arrived[index]);
        if (step_number >= members_ - 2) step(arrived[index], done(to));
      }
      ready = std::move(arrived);
    }
    if (steps == 0) step(joined(0), done(0));
  }

  void hierarchical(const std::vector<int>& sites) {
    std::map<int, std::vector<int>> by_site;
    for (int i = 0; i < members_; ++i) by_site[sites[static_cast<std::size_t>(i)]].push_back(i);
    std::size_t pieces = 0;
    for (const auto& [site, members] : by_site) pieces = std::max(pieces, members.size());
    const double piece = elements_ / static_cast<double>(pieces);
    for (std::size_t p = 0; p < pieces; ++p) {
      std::vector<int> owners, inside, complete;
      for (const auto& [site, members] : by_site) {
        const int owner = members[p % members.size()];
        owners.push_back(owner);
        inside.push_back(add_point());    // the site's sum is at its owner
        complete.push_back(add_point());  // the sum of all is
        for (const int member : members) send(joined(member), member, owner, piece, inside.back());
        for (const int member : members) {
          send(complete.back(), owner, member, piece, done(member));
        }
      }
      const std::vector<double> shares(owners.size(), 1.0 / static_cast<double>(owners.size()));
      sharded(owners, inside, complete, piece, shares);
    }
  }

  ExchangeGraph take() { return std::move(graph_); }

 private:
  ExchangePoint& at(int point) { return graph_.points[static_cast<std::size_t>(point)]; }

  int members_;
  double elements_;
  ExchangeGraph graph_;
};

}  // namespace

ExchangeGraph exchange_graph(const Reduction& reduction, double elements,
                             const std::vector<int>& sites) {
  Builder builder(static_cast<int>(sites.size()), elements);
  switch (reduction.shape) {
    case ReduceShape::kSharded:
      builder.whole_group_sharded(reduction.shares);
      break;
    case ReduceShape::kRing:
      builder.ring();
      break;
    case ReduceShape::kHierarchical:
      builder.hierarchical(sites);
      break;
  }
  return builder.take();
}

}  // namespace longhaul
