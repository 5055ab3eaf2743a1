// Who sends what to whom, and when, while replicas add up their gradients: the exchange of a group
// in each shape, as messages that wait for one another. The step simulation makes flows of them.
//
// For D members, G elements, shares f and S sites:
//
//   shape         what                                                  elements sent
//   sharded       each member sends its part of every shard to the      by member i:
//                 shard's owner, which sends the sum to all             G (1 - f_i) + (D - 1) f_i G
//   ring          in 2 (D - 1) steps each member sends a part to the    by a member:
//                 next: first with its own added, then finished ones    2 (D - 1) G / D
//   hierarchical  in each site, pieces are added up by their owners;    out of a site:
//                 owners of a piece in all sites exchange it sharded;   2 (S - 1) G / S
//                 they send it to the others of their site
//
// A ring's step begins when its part has come. A hierarchical exchange cuts as many pieces as the
// largest site has members, and the members of each site own them in turn: out of a site goes as
// much as one sharded member of S would send, whatever the number of its members.
//
// A plain value; any thread.
#pragma once

#include <vector>

#include "core/plan.h"

namespace longhaul {

/// Elements from one member to another; their arrival is a step of a point.
struct ExchangeMessage {
  int from = 0;
  int to = 0;
  double elements = 0;
  int next = 0;  // point
};

/// Something that is there once `waits` steps are done. It lets messages begin, and is itself a
/// step of other points.
struct ExchangePoint {
  int waits = 0;
  int member = -1;  // whose result is complete with this; -1: nobody's
  std::vector<ExchangeMessage> messages = {};
  std::vector<int> next = {};  // points
};

/// Point i, for each member i, is its joining, and has one step.
struct ExchangeGraph {
  std::vector<ExchangePoint> points;
};

/// `sites[i]`: of member i. Sharded members without a share own nothing and publish nothing.
ExchangeGraph exchange_graph(const Reduction& reduction, double elements,
                             const std::vector<int>& sites);

}  // namespace longhaul
