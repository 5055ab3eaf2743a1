// Who is let in over TLS, and what everybody else is told.

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "executor/security/authority.h"
#include "executor/security/openssl.h"
#include "executor/transport/asio_transport.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kJob = 0xabc;

/// A certificate with its key, and what is sent along with it.
struct Shown {
  std::string certificate_pem;
  std::string key_pem;
  std::string chain_pem;  // one more certificate, or none
};

/// An authority whose key the test holds, so that it can sign what a JobAuthority never would.
struct Authority {
  explicit Authority(const std::string& name = "the job's") {
    key = make_key().value();
    pem = sign_certificate({.public_key_pem = key.public_pem,
                            .common_name = name,
                            .uri = "",
                            .is_authority = true,
                            .issuer_pem = "",
                            .issuer_key_pem = key.private_pem})
              .value();
  }

  Shown sign(const std::string& uri, Seconds lifetime = Seconds(3600)) const {
    const KeyPair leaf = make_key().value();
    return {sign_certificate({.public_key_pem = leaf.public_pem,
                              .common_name = "leaf",
                              .uri = uri,
                              .is_authority = false,
                              .issuer_pem = pem,
                              .issuer_key_pem = key.private_pem,
                              .lifetime = lifetime})
                .value(),
            leaf.private_pem, pem};
  }

  TlsIdentity identity(const std::string& name) const {
    const Shown leaf = sign(certificate_uri(kJob, name));
    return {kJob, pem, leaf.certificate_pem, leaf.key_pem};
  }

  std::string fingerprint() const {
    return fingerprint_of(*read_certificate(pem, "the authority").value());
  }

  KeyPair key;
  std::string pem;
};

struct Keys {
  Authority authority;
  Authority other{"another job's"};
};
const Keys& keys() {
  static const Keys made;
  return made;
}

// ---- An attacker: OpenSSL on a blocking socket, with whatever it likes to show.

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return address;
}

int connect_to(const std::string& address) {
  const sockaddr_in to = loopback(std::stoi(address.substr(address.rfind(':') + 1)));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

OpensslHandle<SSL_CTX> context_of(const Shown& shown) {
  OpensslHandle<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  if (!shown.certificate_pem.empty()) {
    SSL_CTX_use_certificate(context.get(), read_certificate(shown.certificate_pem, "")->get());
    SSL_CTX_use_PrivateKey(context.get(), read_private_key(shown.key_pem, "")->get());
  }
  if (!shown.chain_pem.empty())
    SSL_CTX_add1_chain_cert(context.get(), read_certificate(shown.chain_pem, "")->get());
  return context;
}

/// Handshakes, then reads one byte. Answers what went wrong, in OpenSSL's words.
std::string talk(SSL_CTX* context, int fd, bool is_server) {
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  ERR_clear_error();
  char byte = 0;
  std::string error;
  if ((is_server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1 || SSL_read(ssl, &byte, 1) != 1) {
    const char* reason = ERR_reason_error_string(ERR_get_error());
    error = reason == nullptr ? "closed" : reason;
  }
  SSL_free(ssl);
  close(fd);
  return error;
}

// ---- Our side of it.

struct Outcome {
  std::string identity;  // of the other end, when it was let in
  std::string error;     // of the other end, when it was not
  std::string told;      // what the attacker learned
};

/// Ends the run when `outcome` is known, or after 10 s.
struct Until {
  explicit Until(AsioRuntime& of_run) : runtime(of_run) {
    deadline = runtime.loop().after(Seconds(10), [this] {
      ADD_FAILURE() << "nothing more happens";
      runtime.stop();
    });
  }
  void done() {
    runtime.run();
    runtime.loop().cancel(deadline);
  }
  AsioRuntime& runtime;
  TimerId deadline;
};

std::unique_ptr<Transport> tls_transport(AsioRuntime& runtime,
                                         std::variant<TlsIdentity, TlsJoiner> who,
                                         std::function<void(const Error&)> on_refused = {},
                                         TlsLimits limits = {}) {
  return runtime.make_transport({std::move(who), limits, std::move(on_refused)}).value();
}

/// An attacker calls a listener of the job.
Outcome call_listener(SSL_CTX* attacker) {
  AsioRuntime runtime;
  Until until(runtime);
  Outcome outcome;
  const auto listener =
      tls_transport(runtime, keys().authority.identity("east"), [&](const Error& why) {
        outcome.error = why.message;
        runtime.stop();
      });
  std::unique_ptr<Connection> accepted;
  const std::string address = listener
                                  ->listen("127.0.0.1:0",
                                           [&](std::unique_ptr<Connection> connection) {
                                             accepted = std::move(connection);
                                             outcome.identity = accepted->identity() + "!";
                                             runtime.stop();
                                           })
                                  .value();
  std::thread caller([&] { outcome.told = talk(attacker, connect_to(address), false); });
  until.done();
  caller.join();
  return outcome;
}

/// `who` dials an attacker.
Outcome dial_attacker(const Shown& shown, std::variant<TlsIdentity, TlsJoiner> who) {
  AsioRuntime runtime;
  Until until(runtime);
  Outcome outcome;
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any = loopback(0);
  socklen_t size = sizeof any;
  EXPECT_EQ(bind(listening, reinterpret_cast<const sockaddr*>(&any), size), 0);
  EXPECT_EQ(listen(listening, 1), 0);
  getsockname(listening, reinterpret_cast<sockaddr*>(&any), &size);
  const OpensslHandle<SSL_CTX> context = context_of(shown);
  std::thread server([&] {
    SSL* ssl = SSL_new(context.get());
    SSL_set_fd(ssl, accept(listening, nullptr, nullptr));
    ERR_clear_error();
    const unsigned char welcome = 1;
    char byte = 0;
    if (SSL_accept(ssl) != 1 || SSL_write(ssl, &welcome, 1) != 1 || SSL_read(ssl, &byte, 1) != 1) {
      const char* reason = ERR_reason_error_string(ERR_get_error());
      outcome.told = reason == nullptr ? "closed" : reason;
    }
    close(SSL_get_fd(ssl));
    SSL_free(ssl);
  });
  const auto dialler = tls_transport(runtime, std::move(who));
  dialler->dial(fmt::format("127.0.0.1:{}", ntohs(any.sin_port)), Seconds(5),
                [&](Result<std::unique_ptr<Connection>> connection) {
                  if (connection) {
                    outcome.identity = (*connection)->identity() + "!";
                  } else {
                    outcome.error = connection.error().message;
                  }
                  runtime.stop();
                });
  until.done();
  server.join();
  close(listening);
  return outcome;
}

struct Attack {
  std::string name;
  Shown shown;
  std::string refused;         // by a member of the job, whether it listens or dials
  std::string refused_joiner;  // by somebody who only knows the authority's fingerprint
  std::string told;
};

/// Each row differs from what is let in by one thing.
std::vector<Attack> attacks() {
  const Authority& authority = keys().authority;
  const Authority& other = keys().other;
  const std::string uri = certificate_uri(kJob, "west");
  std::vector<Attack> rows;

  const KeyPair own = make_key().value();
  const std::string self_signed = sign_certificate({.public_key_pem = own.public_pem,
                                                    .common_name = "leaf",
                                                    .uri = uri,
                                                    .is_authority = false,
                                                    .issuer_pem = "",
                                                    .issuer_key_pem = own.private_pem})
                                      .value();
  // The authority's own certificate is no secret, so that anybody can send it along.
  rows.push_back({"signed by itself",
                  {self_signed, own.private_pem, authority.pem},
                  "not signed by this job's authority",
                  "not signed by this job's authority",
                  "unknown ca"});
  rows.push_back({"signed by itself, alone",
                  {self_signed, own.private_pem, ""},
                  "not signed by this job's authority",
                  "not the one of the join file",
                  "unknown ca"});

  rows.push_back({"of another authority", other.sign(uri), "not signed by this job's authority",
                  "not the one of the join file", "unknown ca"});
  Shown mixed = other.sign(uri);
  mixed.chain_pem = authority.pem;
  rows.push_back({"of another authority, with this one's in the chain", mixed,
                  "not signed by this job's authority", "not signed by this job's authority",
                  "unknown ca"});
  // Another authority that calls itself as this one does: only the signature tells.
  const Authority twin;
  Shown forged = twin.sign(uri);
  forged.chain_pem = authority.pem;
  rows.push_back({"of an authority of the same name", forged, "certificate", "certificate", ""});

  // A joiner takes the authority's word for the job.
  rows.push_back({"of another job", authority.sign(certificate_uri(kJob + 1, "west")),
                  "certificate of another job", "", "bad certificate"});
  rows.push_back({"without a job", authority.sign(""), "certificate of another job",
                  "certificate of another job", "bad certificate"});
  for (const char* odd :
       {"longhaul://0000000000000abc/", "longhaul://abc/west", "longhaul://0000000000000ABC/west",
        "https://0000000000000abc/west", "longhaul://x/0000000000000abc/west"}) {
    rows.push_back({odd, authority.sign(odd), "certificate of another job",
                    "certificate of another job", "bad certificate"});
  }
  rows.push_back({"expired", authority.sign(uri, Seconds(-60)), "has expired", "has expired",
                  "certificate expired"});

  // A certificate of the job used as an authority.
  const Shown leaf = authority.sign(uri);
  const KeyPair below_key = make_key().value();
  const std::string below = sign_certificate({.public_key_pem = below_key.public_pem,
                                              .common_name = "below",
                                              .uri = uri,
                                              .is_authority = false,
                                              .issuer_pem = leaf.certificate_pem,
                                              .issuer_key_pem = leaf.key_pem})
                                .value();
  rows.push_back({"of a member",
                  {below, below_key.private_pem, leaf.certificate_pem},
                  "certificate is refused",
                  "not the one of the join file",
                  ""});
  return rows;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Tls, a_listener_lets_no_false_certificate_in_and_tells_why) {
  for (const Attack& attack : attacks()) {
    const Outcome outcome = call_listener(context_of(attack.shown).get());
    EXPECT_EQ(outcome.identity, "") << attack.name;
    EXPECT_TRUE(contains(outcome.error, attack.refused)) << attack.name << ": " << outcome.error;
    EXPECT_TRUE(contains(outcome.told, attack.told)) << attack.name << ": " << outcome.told;
  }
}

TEST(Tls, a_dialler_takes_no_false_certificate_and_says_why) {
  for (const Attack& attack : attacks()) {
    const Outcome outcome = dial_attacker(attack.shown, keys().authority.identity("east"));
    EXPECT_EQ(outcome.identity, "") << attack.name;
    EXPECT_TRUE(contains(outcome.error, attack.refused)) << attack.name << ": " << outcome.error;
    EXPECT_TRUE(contains(outcome.told, attack.told)) << attack.name << ": " << outcome.told;
  }
}

TEST(Tls, a_joiner_takes_only_what_the_authority_of_its_join_file_has_signed) {
  for (const Attack& attack : attacks()) {
    const Outcome outcome = dial_attacker(attack.shown, TlsJoiner{keys().authority.fingerprint()});
    if (attack.refused_joiner.empty()) {
      EXPECT_EQ(outcome.identity, "west!") << attack.name;
      continue;
    }
    EXPECT_EQ(outcome.identity, "") << attack.name;
    EXPECT_TRUE(contains(outcome.error, attack.refused_joiner))
        << attack.name << ": " << outcome.error;
  }
}

TEST(Tls, what_the_attacks_differ_from_is_let_in) {
  const Shown right = keys().authority.sign(certificate_uri(kJob, "west"));
  EXPECT_EQ(call_listener(context_of(right).get()).identity, "west!");
  EXPECT_EQ(dial_attacker(right, keys().authority.identity("east")).identity, "west!");
  EXPECT_EQ(dial_attacker(right, TlsJoiner{keys().authority.fingerprint()}).identity, "west!");
}

TEST(Tls, a_caller_without_a_certificate_is_accepted_and_has_no_name) {
  EXPECT_EQ(call_listener(context_of({}).get()).identity, "!");
}

TEST(Tls, a_joiner_and_a_listener_meet_by_the_fingerprint_alone) {
  const JobAuthority authority = JobAuthority::create(kJob).value();
  const KeyPair key = make_key().value();
  AsioRuntime runtime;
  Until until(runtime);
  const auto listener =
      tls_transport(runtime, TlsIdentity{kJob, authority.certificate_pem(),
                                         authority.issue(key.public_pem, "coordinator").value(),
                                         key.private_pem});
  std::unique_ptr<Connection> accepted, connected;
  const auto stop_when_met = [&] {
    if (accepted && connected) runtime.stop();
  };
  const std::string address = listener
                                  ->listen("127.0.0.1:0",
                                           [&](std::unique_ptr<Connection> connection) {
                                             accepted = std::move(connection);
                                             stop_when_met();
                                           })
                                  .value();
  const auto joiner = tls_transport(runtime, TlsJoiner{authority.fingerprint()});
  joiner->dial(address, Seconds(5), [&](Result<std::unique_ptr<Connection>> dialled) {
    ASSERT_TRUE(dialled) << dialled.error().text();
    connected = std::move(*dialled);
    stop_when_met();
  });
  until.done();
  EXPECT_EQ(connected->identity(), "coordinator");
  EXPECT_EQ(accepted->identity(), "");
}

TEST(Tls, older_versions_are_refused) {
  const OpensslHandle<SSL_CTX> context =
      context_of(keys().authority.sign(certificate_uri(kJob, "west")));
  SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  const Outcome outcome = call_listener(context.get());
  EXPECT_TRUE(contains(outcome.error, "does not speak TLS 1.3")) << outcome.error;
  EXPECT_TRUE(contains(outcome.told, "protocol version")) << outcome.told;
}

/// Keeps the reason why a connection ended.
struct Ending : ConnectionHandler {
  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader&) override {
    return std::nullopt;
  }
  void received(Connection&, const FrameHeader&, std::span<const std::byte>) override {}
  void closed(Connection&, const Error& why) override {
    reason = why.text();
    if (task) task();
  }
  std::string reason;
  std::function<void()> task;
};

/// Two transports of one runtime, one of them with TLS; what each end is told.
struct Told {
  std::string listener;
  std::string dialler;
};
Told plain_calls_tls(std::size_t payload_bytes) {
  AsioRuntime runtime;
  Until until(runtime);
  Told told;
  const auto stop_when_told = [&] {
    if (!told.listener.empty() && !told.dialler.empty()) runtime.stop();
  };
  const auto listener =
      tls_transport(runtime, keys().authority.identity("east"), [&](const Error& why) {
        told.listener = why.text();
        stop_when_told();
      });
  const std::string address =
      listener->listen("127.0.0.1:0", [](std::unique_ptr<Connection>) { FAIL(); }).value();
  const auto dialler = runtime.make_transport();
  Ending ending;
  ending.task = [&] {
    told.dialler = ending.reason;
    stop_when_told();
  };
  std::unique_ptr<Connection> connection;
  const std::vector<std::byte> payload(payload_bytes);
  dialler->dial(address, Seconds(5), [&](Result<std::unique_ptr<Connection>> dialled) {
    ASSERT_TRUE(dialled) << dialled.error().text();
    connection = std::move(*dialled);
    connection->set_handler(&ending);
    FrameHeader header;
    header.type = FrameType::kData;
    connection->send(header, payload, [] {});
  });
  until.done();
  return told;
}

TEST(Tls, a_plain_caller_at_a_tls_port_and_its_listener_both_learn_it) {
  // Also with more under way than the listener has read when it turns the caller away.
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{kMaxDataPayload}}) {
    const Told told = plain_calls_tls(bytes);
    EXPECT_TRUE(contains(told.listener, "expected TLS, got something else")) << told.listener;
    EXPECT_TRUE(contains(told.dialler, "expected plain TCP, got TLS")) << told.dialler;
  }
}

TEST(Tls, a_tls_caller_at_a_plain_port_and_its_listener_both_learn_it) {
  AsioRuntime runtime;
  Until until(runtime);
  const auto listener = runtime.make_transport();
  std::unique_ptr<Connection> accepted;
  Ending ending;
  const std::string address = listener
                                  ->listen("127.0.0.1:0",
                                           [&](std::unique_ptr<Connection> connection) {
                                             accepted = std::move(connection);
                                             accepted->set_handler(&ending);
                                           })
                                  .value();
  const auto dialler = tls_transport(runtime, keys().authority.identity("west"));
  std::string error;
  dialler->dial(address, Seconds(5), [&](Result<std::unique_ptr<Connection>> dialled) {
    ASSERT_FALSE(dialled);
    error = dialled.error().text();
    runtime.stop();
  });
  until.done();
  EXPECT_TRUE(contains(error, address)) << error;
  EXPECT_TRUE(contains(error, "expected TLS")) << error;
  EXPECT_TRUE(contains(error, "without TLS")) << error;
  EXPECT_TRUE(contains(ending.reason, "expected plain TCP, got TLS")) << ending.reason;
}

TEST(Tls, a_dial_learns_that_it_was_refused_before_it_takes_itself_for_connected) {
  // The dialler's clock is right, its certificate too old: the listener alone can object, after the
  // dialler's part of the handshake is over.
  AsioRuntime runtime;
  Until until(runtime);
  const auto listener = tls_transport(runtime, keys().authority.identity("east"));
  const std::string address =
      listener->listen("127.0.0.1:0", [](std::unique_ptr<Connection>) { FAIL(); }).value();
  const Shown old = keys().authority.sign(certificate_uri(kJob, "west"), Seconds(-60));
  const auto dialler = tls_transport(
      runtime, TlsIdentity{kJob, keys().authority.pem, old.certificate_pem, old.key_pem});
  std::string error;
  dialler->dial(address, Seconds(5), [&](Result<std::unique_ptr<Connection>> dialled) {
    ASSERT_FALSE(dialled);
    error = dialled.error().message;
    runtime.stop();
  });
  until.done();
  EXPECT_TRUE(contains(error, "refuses this certificate: it has expired")) << error;
}

TEST(Tls, silent_callers_are_turned_away_and_hold_only_so_many_places) {
  AsioRuntime runtime;
  Until until(runtime);
  std::vector<std::string> refused;
  const auto listener = tls_transport(runtime, keys().authority.identity("east"),
                                      [&](const Error& why) { refused.push_back(why.message); },
                                      {.handshake_deadline = Seconds(0.05), .handshakes = 2});
  std::unique_ptr<Connection> accepted, connected;
  const std::string address = listener
                                  ->listen("127.0.0.1:0",
                                           [&](std::unique_ptr<Connection> connection) {
                                             accepted = std::move(connection);
                                           })
                                  .value();
  // Two hold all places, one waits before the caller who does speak.
  const int silent[] = {connect_to(address), connect_to(address), connect_to(address)};
  const auto dialler = tls_transport(runtime, keys().authority.identity("west"));
  dialler->dial(address, Seconds(5), [&](Result<std::unique_ptr<Connection>> dialled) {
    ASSERT_TRUE(dialled) << dialled.error().text();
    connected = std::move(*dialled);
    EXPECT_GE(refused.size(), 2u);
    runtime.stop();
  });
  until.done();
  ASSERT_FALSE(refused.empty());
  EXPECT_TRUE(contains(refused.front(), "no TLS handshake before the deadline")) << refused.front();
  for (const int fd : silent) close(fd);
}

TEST(Tls, a_transport_that_goes_away_abandons_its_handshakes) {
  AsioRuntime runtime;
  Until until(runtime);
  auto listener = tls_transport(runtime, keys().authority.identity("east"),
                                [](const Error& why) { FAIL() << why.text(); },
                                {.handshake_deadline = Seconds(0.5)});
  const std::string address =
      listener->listen("127.0.0.1:0", [](std::unique_ptr<Connection>) { FAIL(); }).value();
  const int silent = connect_to(address);
  int turns = 0;  // of the loop: enough to have accepted the caller, far from its deadline
  const std::function<void()> turn = [&] {
    if (++turns == 20) return listener.reset();
    runtime.loop().post([&] { turn(); });
  };
  turn();
  std::thread caller([&] {
    char byte = 0;
    while (read(silent, &byte, 1) > 0) continue;
    runtime.loop().post([&] { runtime.stop(); });
  });
  until.done();
  caller.join();
  close(silent);
}

void count_key_updates(int, int, int type, const void* bytes, std::size_t size, SSL*, void* count) {
  if (type == SSL3_RT_HANDSHAKE && size > 0 &&
      *static_cast<const unsigned char*>(bytes) == SSL3_MT_KEY_UPDATE)
    ++*static_cast<int*>(count);
}

TEST(Tls, a_key_is_replaced_when_it_has_encrypted_its_share) {
  AsioRuntime runtime;
  Until until(runtime);
  const auto listener =
      tls_transport(runtime, keys().authority.identity("east"), {}, {.key_bytes = Bytes(150'000)});
  const std::vector<std::byte> payload(100'000);
  std::unique_ptr<Connection> accepted;
  Ending ending;
  ending.task = [&] { runtime.stop(); };
  const std::string address = listener
                                  ->listen("127.0.0.1:0",
                                           [&](std::unique_ptr<Connection> connection) {
                                             accepted = std::move(connection);
                                             accepted->set_handler(&ending);
                                             for (int i = 0; i < 3; ++i)
                                               accepted->send({}, payload, [] {});
                                           })
                                  .value();
  // Two frames of 100,064 bytes are more than a key's share, so that the second and the third frame
  // each start with a new key.
  int key_updates = 0;
  std::size_t got = 0;
  std::thread caller([&] {
    const OpensslHandle<SSL_CTX> context = context_of({});
    SSL* ssl = SSL_new(context.get());
    SSL_set_msg_callback(ssl, count_key_updates);
    SSL_set_msg_callback_arg(ssl, &key_updates);
    const int fd = connect_to(address);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) == 1) {
      std::vector<char> bytes(1 << 16);
      const std::size_t all = 1 + 3 * (kFrameHeaderBytes + payload.size());
      for (int n = 1; got < all && n > 0; got += static_cast<std::size_t>(std::max(n, 0))) {
        n = SSL_read(ssl, bytes.data(), static_cast<int>(bytes.size()));
      }
    }
    SSL_free(ssl);
    close(fd);
  });
  until.done();
  caller.join();
  EXPECT_EQ(got, 1 + 3 * (kFrameHeaderBytes + payload.size()));
  EXPECT_EQ(key_updates, 2);
}

TEST(Tls, what_cannot_work_is_refused_before_anything_is_dialled) {
  AsioRuntime runtime;
  const Authority& authority = keys().authority;
  const TlsIdentity right = authority.identity("east");
  struct Case {
    std::variant<TlsIdentity, TlsJoiner> who;
    std::string error;
  };
  const auto with = [&](auto change) {
    TlsIdentity identity = right;
    change(identity);
    return identity;
  };
  const Case cases[] = {
      {with([](TlsIdentity& it) { it.authority_pem = "x"; }), "cannot read the job's authority"},
      {with([](TlsIdentity& it) { it.certificate_pem = ""; }), "cannot read this process's cert"},
      {with([](TlsIdentity& it) { it.key_pem = "x"; }), "cannot read this process's key"},
      {with([](TlsIdentity& it) { it.key_pem = make_key().value().private_pem; }),
       "cannot be used"},
      {with([](TlsIdentity& it) { it.job = kJob + 1; }), "is not of this job"},
      {with([](TlsIdentity& it) { it.authority_pem = keys().other.pem; }), "is not of this job"},
      {TlsJoiner{""}, "is not the fingerprint"},
      {TlsJoiner{authority.fingerprint() + "0"}, "is not the fingerprint"},
      {TlsJoiner{"md5-00:" + std::string(64, '0')}, "is not the fingerprint"},
  };
  for (const Case& bad : cases) {
    const auto made = runtime.make_transport({bad.who, {}, {}});
    ASSERT_FALSE(made) << bad.error;
    EXPECT_TRUE(contains(made.error().message, bad.error)) << made.error().text();
  }
  const auto joiner = tls_transport(runtime, TlsJoiner{authority.fingerprint()});
  const auto listening = joiner->listen("127.0.0.1:0", [](std::unique_ptr<Connection>) {});
  ASSERT_FALSE(listening);
  EXPECT_TRUE(contains(listening.error().text(), "join the job first"));
}

}  // namespace
}  // namespace longhaul
