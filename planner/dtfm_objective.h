// DT-FM's placement objective, to the digit: what a partition of devices into pipeline stages
// costs (Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments",
// NeurIPS 2022, equations 1-4). Kept for comparison: it knows no compute time, memory,
// micro-batches or overlap, and it adds up transfers of the whole macro-batch.
//
// A partition is P groups (stages) of D devices (one a pipeline). With G gradient_gb, A
// activation_gb, l latency and B rate:
//
//   e(i,j)   = l[i,j] + A*8 / B[i,j]                        activations of a macro-batch, one way
//   x(i,j)   = 2 * (l[i,j] + G*8 / (B[i,j] * D))            one shard of a gradient, there and back
//   DP       = max over groups C, i in C of sum of x(i,j)   the replicas' exchange     (equation 1)
//   hop(C,C')= min over perfect matchings of max e(i,j)     every pipeline moves on    (equation 2)
//   PP       = min over open paths over all groups of the sum of hops                  (equation 3)
//   total    = DP + 2 * PP                                  forward and backward       (equation 4)
//
// The units are the original's: decimal gigabytes for gradients, binary ones for activations, both
// times eight over Gbit/s.
//
// Direction. evaluate_dtfm reads e(i,j) only with i in the group that is listed first, as the
// original does, whatever way the path runs. evaluate_dtfm_in_order takes the listing as the path,
// so every hop is read in the direction in which activations flow; the search and the plans use
// this one. On symmetric matrices both agree once the groups are listed in path order.
//
// All functions are pure and may be called from any thread.
#pragma once

#include <span>
#include <vector>

#include "core/result.h"

namespace longhaul {

/// One placement problem. Matrices are devices x devices, row-major, row = sender. Diagonals are
/// not read.
struct DtfmInstance {
  int devices = 0;   // = stages * replicas
  int stages = 0;    // P
  int replicas = 0;  // D
  std::vector<double> latency_s;
  std::vector<double> gbit_per_s;
  double gradient_gb = 0;
  double activation_gb = 0;

  /// e(i,j) of the file comment.
  double activation_hop_s(int from, int to) const;
  /// x(i,j) of the file comment.
  double gradient_exchange_s(int from, int to) const;
};

/// groups[s] lists the devices of stage s.
using DtfmPartition = std::vector<std::vector<int>>;

struct DtfmCost {
  double data_parallel_s = 0;  // DP
  double pipeline_s = 0;       // 2 * PP
  double total_s = 0;
  std::vector<int> path;  // indices of groups, first stage first
};

/// Sizes agree, rates are positive, all values finite where they are read.
Result<void> check_dtfm_instance(const DtfmInstance& instance);
/// Every device exactly once, P groups of D.
Result<void> check_dtfm_partition(const DtfmInstance& instance, const DtfmPartition& partition);

/// Cost with the best path. The partition must pass check_dtfm_partition.
DtfmCost evaluate_dtfm(const DtfmInstance& instance, const DtfmPartition& partition);
/// Cost with the groups' listing as the path.
DtfmCost evaluate_dtfm_in_order(const DtfmInstance& instance, const DtfmPartition& partition);

/// The groups in path order, members permuted so that the i-th of every stage form pipeline i: the
/// bottleneck matchings from each stage to the next, chained.
DtfmPartition arrange_dtfm(const DtfmInstance& instance, const DtfmPartition& partition,
                           std::span<const int> path);

struct BottleneckMatching {
  double worst = 0;            // 0 for an empty matrix
  std::vector<int> column_of;  // by row
};
/// The perfect matching of a size x size row-major cost matrix whose largest entry is smallest.
/// O(size^3).
BottleneckMatching bottleneck_matching(std::span<const double> cost, int size);

/// Up to this many groups the path is exact; the table then holds 2^P * P doubles (168 MB at 20).
inline constexpr int kExactPathStages = 20;
/// The cheapest open path over all nodes; cost is nodes x nodes, row = from. Exact (Held and Karp)
/// up to `exact_limit` nodes; above, nearest neighbour from every start, polished (the best one
/// only where there are more than 64 nodes).
std::vector<int> shortest_open_path(std::span<const double> cost, int nodes,
                                    int exact_limit = kExactPathStages);

/// Reverses segments (2-opt) and moves segments of one to three nodes (Or-opt) until neither makes
/// the path shorter.
void polish_open_path(std::span<const double> cost, int nodes, std::vector<int>& path);

}  // namespace longhaul
