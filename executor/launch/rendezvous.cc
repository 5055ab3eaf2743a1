#include "executor/launch/rendezvous.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace longhaul {

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;  // the length of a token is no secret
  volatile int different = 0;              // a compiler must not leave the loop early
  for (std::size_t i = 0; i < a.size(); ++i) different = different | (a[i] ^ b[i]);
  return different == 0;
}

Result<std::unique_ptr<Rendezvous>> Rendezvous::start(Transport& transport, EventLoop& loop,
                                                      std::shared_ptr<MeshListener> listener,
                                                      RendezvousConfig config,
                                                      RendezvousHooks hooks) {
  LH_TRY(check_spec(config.spec));
  std::size_t workers = 0;
  for (const RendezvousNode& node : config.nodes) {
    workers += node.ranks.size();
    if (node.name.size() > kNodeNameMax) {
      return invalid(fmt::format("the name of node {}... is longer than {} bytes",
                                 node.name.substr(0, 20), kNodeNameMax));
    }
  }
  if (workers > kWorkersMax) {
    return invalid(fmt::format("{} workers, and at most {} can be launched", workers, kWorkersMax));
  }
  return std::unique_ptr<Rendezvous>(
      new Rendezvous(transport, loop, std::move(listener), std::move(config), std::move(hooks)));
}

Rendezvous::Rendezvous(Transport& transport, EventLoop& loop,
                       std::shared_ptr<MeshListener> listener, RendezvousConfig config,
                       RendezvousHooks hooks)
    : transport_(transport),
      loop_(loop),
      listener_(std::move(listener)),
      config_(std::move(config)),
      hooks_(std::move(hooks)),
      give_up_at_(loop_.now() + config_.deadline) {
  LH_CHECK(!config_.token.empty() && !config_.nodes.empty(), "a job has nodes, and a token");
  std::vector<int> ranks;
  for (RendezvousNode& node : config_.nodes) {
    LH_CHECK(!node.ranks.empty() && !node.name.empty(), "a node has workers, and a name");
    ranks.insert(ranks.end(), node.ranks.begin(), node.ranks.end());
    Node& place = nodes_.emplace_back();
    place.addresses.resize(node.ranks.size());
    place.plan = std::move(node);
  }
  std::ranges::sort(ranks);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    LH_CHECK(ranks[i] == static_cast<int>(i) + 1, "each rank belongs to one node");
  }
  timer_ = loop_.after(config_.deadline, [this] { out_of_time(); });
  listener_->on_join([this](std::unique_ptr<Connection> connection, const std::string& text) {
    joins(std::move(connection), text);
  });
}

Rendezvous::~Rendezvous() {
  loop_.cancel(timer_);
  listener_->on_join(nullptr);
  if (state_ != State::kStanding) listener_->close();  // and with it a mesh in the making
}

// ---- joining

void Rendezvous::joins(std::unique_ptr<Connection> connection, const std::string& text) {
  const std::string from = connection->peer();
  const auto refuse = [&](const std::string& why) {
    listener_->refuse(std::move(connection), why);
    tell_progress(fmt::format("an agent at {} was refused: {}", from, why));
  };
  const Result<LaunchMessage> message = parse_launch(text);
  if (!message) return refuse(message.error().message);
  const Join* const join = std::get_if<Join>(&*message);
  if (join == nullptr) return refuse("an agent's first message asks to join");
  const Result<Node*> node = admit(*join);
  if (node) return welcome(**node, *join, std::move(connection));
  const std::weak_ptr alive = alive_;
  refuse(node.error().message);
  if (alive.expired() || wrong_tokens_ < config_.limits.wrong_tokens) return;
  fail(failed(
           fmt::format("{} agents came with a wrong token, the last from {}", wrong_tokens_, from),
           "start again; agents need the new token")
           .error());
}

Result<Rendezvous::Node*> Rendezvous::admit(const Join& join) {
  if (state_ == State::kFailed) return failed("this launch has failed");
  const auto is_free = [](const Node& node) { return !node.has_joined(); };
  const auto free = std::ranges::find_if(nodes_, is_free);
  if (free == nodes_.end()) return failed("all nodes of this job have joined");
  if (!same_secret(join.token, config_.token)) {
    ++wrong_tokens_;
    return failed("the token is wrong");
  }
  if (join.node.empty()) return &*free;
  std::vector<std::string> names;
  for (Node& node : nodes_) {
    if (node.plan.name != join.node) {
      names.push_back(node.plan.name);
    } else if (node.has_joined()) {
      return failed(fmt::format("node {} has already joined from {}", join.node, node.joined_from));
    } else {
      return &node;
    }
  }
  return failed(
      fmt::format("this job has no node {}; its nodes are {}", join.node, fmt::join(names, ", ")));
}

void Rendezvous::welcome(Node& node, const Join& join, std::unique_ptr<Connection> connection) {
  Certified certified;
  if (hooks_.certify) {
    auto answer = hooks_.certify(join.public_key, node.plan.name);
    if (!answer) {
      const std::string why = "its key cannot be certified: " + answer.error().message;
      listener_->refuse(std::move(connection), why);
      return tell_progress(fmt::format("node {} was refused: {}", node.plan.name, why));
    }
    certified = std::move(*answer);
    LH_CHECK(certified.certificate.size() + certified.authority.size() <= kCertificateBytesMax,
             "certificates of ours are short");
  }
  node.joined_from = connection->peer();
  node.agent = std::make_unique<ControlLink>(
      loop_, std::move(connection), config_.job, config_.limits.control,
      ControlLinkHooks{
          [this, &node](const LaunchMessage& message) { received(node, message); },
          [this, &node](const Error& why) { agent_closed(node, why); },
      });
  node.agent->watch();
  node.agent->send(Welcome{config_.job, node.plan.name, node.plan.ranks, config_.spec,
                           std::move(certified.certificate), std::move(certified.authority)});
  tell_progress();
}

void Rendezvous::received(Node& node, const LaunchMessage& message) {
  if (const auto* listening = std::get_if<Listening>(&message)) return listens(node, *listening);
  if (const auto* exit = std::get_if<WorkerExited>(&message)) return worker_exited(node, *exit);
  if (const auto* failure = std::get_if<AgentFailed>(&message)) {
    fail(failed(fmt::format("node {}: {}", node.plan.name, failure->reason)).error());
    return leave(node);
  }
  agent_closed(node, failed("it sent what only a coordinator may").error());
}

void Rendezvous::listens(Node& node, const Listening& listening) {
  const auto rank = std::ranges::find(node.plan.ranks, listening.rank);
  if (rank == node.plan.ranks.end()) {
    return agent_closed(
        node,
        failed(fmt::format("it speaks for rank {}, which is not its own", listening.rank)).error());
  }
  if (state_ != State::kJoining) return;
  node.addresses[static_cast<std::size_t>(rank - node.plan.ranks.begin())] = listening.address;
  const std::weak_ptr alive = alive_;
  tell_progress();
  if (alive.expired() || state_ != State::kJoining) return;
  const auto all_listen = [](const Node& each) {
    return std::ranges::none_of(each.addresses, [](const auto& text) { return text.empty(); });
  };
  if (std::ranges::all_of(nodes_, all_listen)) connect();
}

void Rendezvous::connect() {
  state_ = State::kConnecting;
  MeshConfig mesh;
  mesh.job = config_.job;
  mesh.term = config_.term;
  mesh.limits = config_.mesh;
  mesh.deadline = std::max(give_up_at_ - loop_.now(), Seconds(0));
  std::size_t workers = 0;
  for (const Node& node : nodes_) workers += node.plan.ranks.size();
  mesh.addresses.resize(workers + 1, listener_->address());
  if (hooks_.certify) mesh.identities.resize(workers + 1, config_.coordinator_identity);
  for (const Node& node : nodes_) {
    for (std::size_t i = 0; i < node.plan.ranks.size(); ++i) {
      const auto rank = static_cast<std::size_t>(node.plan.ranks[i]);
      mesh.addresses[rank] = node.addresses[i];
      if (hooks_.certify) mesh.identities[rank] = node.plan.name;
    }
  }
  for (const Node& node : nodes_) node.agent->send(PeerAddresses{mesh.addresses, mesh.identities});
  connect_mesh(transport_, loop_, listener_, std::move(mesh),
               [this, alive = std::weak_ptr(alive_)](auto result) {
                 if (!alive.expired()) connected(std::move(result));
               });
}

void Rendezvous::connected(Result<std::unique_ptr<TransportMesh>> mesh) {
  if (state_ != State::kConnecting) return;  // something else has failed, and the mesh goes away
  if (!mesh) return fail(std::move(mesh.error()));
  state_ = State::kStanding;
  loop_.cancel(timer_);
  std::exchange(hooks_.ready, nullptr)(std::move(mesh));
}

// ---- what ends

void Rendezvous::worker_exited(Node& node, const WorkerExited& exit) {
  const bool is_own = std::ranges::find(node.plan.ranks, exit.rank) != node.plan.ranks.end();
  if (!is_own || node.ended == node.plan.ranks.size()) {
    return agent_closed(
        node,
        failed(fmt::format("it speaks for rank {}, which is not its own", exit.rank)).error());
  }
  ++node.ended;
  const std::weak_ptr alive = alive_;
  if (state_ == State::kStanding) {
    if (const auto hook = hooks_.exited) hook(exit);
  } else if (state_ != State::kFailed) {
    const char* when =
        state_ == State::kJoining ? "before all workers listened" : "while connecting";
    fail(failed(fmt::format("node {}, {}: {}", node.plan.name, when, exit.text())).error());
  }
  if (!alive.expired() && node.ended == node.plan.ranks.size()) leave(node);
}

void Rendezvous::agent_closed(Node& node, const Error& why) {
  if (!node.agent) return;
  const Error lost =
      failed(fmt::format("the agent of node {} is lost: {}", node.plan.name, why.message)).error();
  leave(node);
  if (state_ == State::kStanding) {
    if (const auto hook = hooks_.agent_lost) hook(node.plan.name, lost);
  } else {
    fail(lost);
  }
}

void Rendezvous::leave(Node& node) {
  if (!node.agent) return;
  retired_.push_back(std::move(node.agent));
  loop_.post([this, weak = std::weak_ptr(alive_)] {
    if (weak.expired()) return;
    retired_.clear();
    tell_if_all_left();
  });
}

void Rendezvous::tell_if_all_left() {
  const bool somebody_is_there =
      std::ranges::any_of(nodes_, [](const Node& node) { return node.agent != nullptr; });
  if (somebody_is_there || hooks_.ready) return;
  if (const auto hook = std::exchange(hooks_.all_left, nullptr)) hook();
}

void Rendezvous::out_of_time() {
  std::vector<std::string> nodes, workers;
  for (const Node& node : nodes_) {
    if (!node.has_joined()) {
      nodes.push_back(node.plan.name);
      continue;
    }
    for (std::size_t i = 0; i < node.addresses.size(); ++i) {
      if (!node.addresses[i].empty()) continue;
      workers.push_back(fmt::format("rank {} (node {})", node.plan.ranks[i], node.plan.name));
    }
  }
  if (state_ != State::kJoining) return;  // the mesh says itself who is missing
  std::string text = fmt::format("after {} s", config_.deadline.value());
  if (!nodes.empty())
    text += fmt::format(" these nodes have not joined: {}", fmt::join(nodes, ", "));
  if (!workers.empty()) {
    text += fmt::format("{} these workers do not listen: {}", nodes.empty() ? "" : ";",
                        fmt::join(workers, ", "));
  }
  fail(failed(std::move(text), nodes.empty() ? "" : "start `longhaul agent` on each node").error());
}

void Rendezvous::fail(Error error) {
  if (state_ == State::kFailed) return;
  if (state_ == State::kStanding) return order_end(error.message);
  state_ = State::kFailed;
  loop_.cancel(timer_);
  order_end(error.message);
  loop_.post([this, weak = std::weak_ptr(alive_), error = std::move(error)]() mutable {
    if (weak.expired()) return;
    std::exchange(hooks_.ready, nullptr)(std::unexpected(std::move(error)));
    if (!weak.expired()) tell_if_all_left();
  });
}

void Rendezvous::terminate(const std::string& reason) {
  if (state_ == State::kStanding || state_ == State::kFailed) return order_end(reason);
  fail(failed(reason).error());
}

void Rendezvous::order_end(const std::string& reason) {
  for (const Node& node : nodes_) {
    if (node.agent) node.agent->send(Terminate{reason.substr(0, kReasonBytesMax)});
  }
}

void Rendezvous::tell_progress(const std::string& trouble) {
  if (!hooks_.progress || state_ == State::kFailed) return;
  RendezvousProgress progress;
  progress.trouble = trouble;
  for (const Node& node : nodes_) {
    (node.has_joined() ? progress.joined : progress.missing).push_back(node.plan.name);
    progress.workers += static_cast<int>(node.plan.ranks.size());
    progress.listening += static_cast<int>(std::ranges::count_if(
        node.addresses, [](const std::string& text) { return !text.empty(); }));
  }
  const auto hook = hooks_.progress;  // may destroy this
  hook(progress);
}

}  // namespace longhaul
