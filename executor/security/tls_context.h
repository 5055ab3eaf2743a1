// TLS for one transport: the settings of its connections, and whom they trust.
//
// TLS 1.3 only; no tickets, no early data, no system store. A certificate counts if the job's
// authority has signed it, for this use and this time, and its URI names this job (authority.h).
// Used on the thread of the transport.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "core/result.h"
#include "core/units.h"
#include "executor/security/authority.h"
#include "executor/security/openssl.h"

struct ssl_st;

namespace longhaul {

struct TlsLimits {
  /// From an accepted socket to a caller that is let in. What a caller sends after it was turned
  /// away is thrown away until then, so that it can read why.
  Seconds handshake_deadline{5};
  /// Of one listener, at one time; more callers wait in the kernel's queue.
  std::size_t handshakes = 64;
  /// A key encrypts so much and is then replaced. RFC 8446, 5.5: at most 2^24.5 full records of
  /// 16 KiB, 388 GB; this is a sixth of it.
  Bytes key_bytes{64e9};
};

/// Somebody who is still to join: it knows only the fingerprint of the job's authority (from a join
/// file, authority.h), and has no certificate to show. It may only dial.
struct TlsJoiner {
  std::string authority_fingerprint;
};

struct TlsOptions {
  std::variant<TlsIdentity, TlsJoiner> who;
  TlsLimits limits;
  /// Told of each caller that a listener has turned away, for the log. May be empty.
  std::function<void(const Error&)> on_refused;
};

class TlsContext {
 public:
  /// Refuses what cannot be read, a key that does not fit its certificate, and a certificate that
  /// its own job would refuse.
  static Result<TlsContext> create(const std::variant<TlsIdentity, TlsJoiner>& who);
  TlsContext(TlsContext&&) noexcept;
  ~TlsContext();

  bool may_listen() const;
  /// Must not be used after this object is gone. OpenSSL counts references: a copy for somebody
  /// who frees it is made with SSL_CTX_up_ref.
  ssl_ctx_st* native() const { return context_.get(); }

  struct Trust;

 private:
  TlsContext(OpensslHandle<ssl_ctx_st> context, std::unique_ptr<Trust> trust);
  OpensslHandle<ssl_ctx_st> context_;
  std::unique_ptr<Trust> trust_;  // where the handshakes look
};

/// The NAME in the other end's certificate; empty if it has shown none.
std::string tls_peer_name(const ssl_st* connection);

/// What an error of OpenSSL means for a person; `code` is the library's.
Error tls_error(const ssl_st* connection, unsigned long code);

}  // namespace longhaul
