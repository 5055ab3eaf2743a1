// A cluster and a job that what-if edits change. Each row of a table has a copy of its own.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/topology.h"
#include "tools/what_if_grammar.h"

namespace longhaul {

/// What edits start from and where they look for what they add.
struct WhatIfBase {
  Topology topology;
  Job job;
  std::string cluster_path;
  std::string job_path;
  std::string job_text;
  std::string links_like;  // a site whose links a new one gets, where no trace knows it; or empty
  std::string conditions_path = {};  // under which every row is simulated; empty: nothing unusual
};

class World {
 public:
  explicit World(const WhatIfBase& base);

  /// Applies edits in their order, a percentile before all others, and completes what they leave
  /// open: links of new sites, TCP's limits. Errors (kInvalid) name the word that is wrong.
  Result<void> apply(const std::vector<Edit>& edits);

  const Topology& topology() const { return topology_; }
  const Job& job() const { return job_; }
  /// Sentences about what an edit does not do, or does beside what was asked for; each once.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Links that were removed, by site: nothing may use them.
  std::vector<std::pair<int, int>> removed_links() const;

 private:
  using Pair = std::pair<int, int>;  // sites
  using Names = std::pair<std::string, std::string>;

  Result<void> apply_one(const Edit& edit);
  // what_if_world.cc
  Result<void> edit_link(const Edit& edit);
  Result<void> edit_site(const Edit& edit);
  Result<void> edit_node(const Edit& edit);
  Result<void> edit_device(const Edit& edit);
  Result<void> edit_tcp(const Edit& edit);
  Result<void> edit_job(const Edit& edit);
  // what_if_sites.cc
  Result<void> edit_percentile(const Edit& edit);
  Result<void> remove(const Edit& edit);
  Result<void> remove_links(const Edit& edit);
  Result<void> add_site(const Edit& edit);
  Result<void> add_node(const Edit& edit);
  Result<void> complete_new_links();
  Result<void> check_rates() const;

  Result<void> change_link(const Edit& edit, Pair pair);
  Result<std::vector<Pair>> links_of(const Edit& edit) const;
  Result<std::vector<int>> sites_of(const Edit& edit, const EditWord& word) const;
  Result<std::vector<int>> devices_of(const Edit& edit) const;
  Result<int> kind_named(const Edit& edit, const std::string& name);
  Names names_of(Pair pair) const;
  Link& link(Pair pair);
  void limit_all_by_tcp();
  void note(std::string text);

  const WhatIfBase& base_;
  Topology topology_;
  Job job_;
  std::string job_text_;
  std::vector<std::string> notes_;
  std::optional<double> percentile_;  // in place of the cluster's
  std::set<Names> removed_links_;
  /// Links of new sites, and whether their latency is known yet.
  std::map<Names, bool> new_links_;
};

/// What is known of the network between a new site and each of the others, and inside it, before a
/// person says it with edits. A link's `measured` is its rate; infinite: unknown.
struct NewSiteLinks {
  struct Known {
    std::optional<Link> out;   // from the new site
    std::optional<Link> back;  // to it
  };
  std::vector<Known> others;  // by site of the topology
  std::optional<Link> inside;
  std::string source;  // where they come from, for a note; empty: nothing is known
};

/// Looks for a new site's links: in the trace of the base's cluster, which may have a place of that
/// name, else at `links_like`, else in shipped measurements and models of the network between
/// places (netsim/cluster_build.h). Errors (kInvalid): an unknown site in links_like; a cluster or
/// a trace that cannot be read.
Result<NewSiteLinks> links_of_new_site(const WhatIfBase& base, const Topology& topology,
                                       const std::string& name, std::optional<double> percentile);

/// The base's cluster at another percentile of the trace that it names.
Result<Topology> cluster_at_percentile(const WhatIfBase& base, double percentile);

/// A cluster of one site `name` with one node of such devices (`8xa100,4xt4`); device kinds are
/// those that the base's cluster knows.
Result<Topology> cluster_of_one_site(const WhatIfBase& base, const std::string& name,
                                     const std::string& devices);

}  // namespace longhaul
