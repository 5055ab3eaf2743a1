#include "executor/security/tls_context.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <optional>
#include <utility>

namespace longhaul {
namespace {

struct PeerName {
  std::uint64_t job = 0;
  std::string name;
};

/// From the one URI of a certificate's subject alternative names.
std::optional<PeerName> name_in(const X509& certificate) {
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  if (!names || sk_GENERAL_NAME_num(names.get()) != 1) return std::nullopt;
  const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names.get(), 0);
  if (entry->type != GEN_URI) return std::nullopt;
  const ASN1_STRING* text = entry->d.uniformResourceIdentifier;
  const std::string uri(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                        static_cast<std::size_t>(ASN1_STRING_length(text)));
  // The job's digits are read back and written again: there is one way to write an URI.
  const std::size_t slash = uri.rfind('/');
  PeerName peer;
  if (slash == std::string::npos || slash < 16 || slash + 1 == uri.size()) return std::nullopt;
  for (const char c : uri.substr(slash - 16, 16)) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    peer.job = peer.job << 4 | digit;
  }
  peer.name = uri.substr(slash + 1);
  return certificate_uri(peer.job, peer.name) == uri ? std::optional(peer) : std::nullopt;
}

}  // namespace

struct TlsContext::Trust {
  OpensslHandle<X509> authority;  // null: a joiner's, who finds it by its fingerprint
  std::string fingerprint;
  std::uint64_t job = 0;  // not of a joiner, for whom the authority stands for its job
};

namespace {

/// Who must have signed the other end's certificate; null if it did not show it to a joiner.
X509* authority_for(const TlsContext::Trust& trust, X509_STORE_CTX* check) {
  if (trust.authority) return trust.authority.get();
  STACK_OF(X509)* shown = X509_STORE_CTX_get0_untrusted(check);
  for (int i = 0; i < sk_X509_num(shown); ++i) {
    X509* certificate = sk_X509_value(shown, i);
    if (fingerprint_of(*certificate) == trust.fingerprint) return certificate;
  }
  return nullptr;
}

int refuse(X509_STORE_CTX* check, int error) {
  X509_STORE_CTX_set_error(check, error);
  return 0;
}

/// OpenSSL calls this instead of its own check of a chain. The errors become the alerts that the
/// other end reads; tls_error has the sentences for both.
int check_peer(X509_STORE_CTX* check, void* argument) {
  const auto& trust = *static_cast<const TlsContext::Trust*>(argument);
  X509* const authority = authority_for(trust, check);
  if (authority == nullptr) return refuse(check, X509_V_ERR_CERT_UNTRUSTED);
  STACK_OF(X509)* trusted = sk_X509_new_null();
  if (trusted == nullptr || sk_X509_push(trusted, authority) == 0) {
    sk_X509_free(trusted);
    return refuse(check, X509_V_ERR_OUT_OF_MEM);
  }
  X509_STORE_CTX_set0_trusted_stack(check, trusted);
  const bool is_signed = X509_verify_cert(check) == 1;
  X509_STORE_CTX_set0_trusted_stack(check, nullptr);
  sk_X509_free(trusted);
  if (!is_signed) {
    // Never leave a refusal with an error that reads "ok".
    if (X509_STORE_CTX_get_error(check) == X509_V_OK)
      X509_STORE_CTX_set_error(check, X509_V_ERR_UNSPECIFIED);
    return 0;
  }
  const std::optional<PeerName> peer = name_in(*X509_STORE_CTX_get0_cert(check));
  if (!peer || (trust.authority && peer->job != trust.job))
    return refuse(check, X509_V_ERR_CERT_REJECTED);
  return 1;
}

Result<OpensslHandle<SSL_CTX>> make_context(TlsContext::Trust& trust) {
  OpensslHandle<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  // 128-bit AES first: it is as strong as the P-256 keys, and faster than 256 bits.
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(
          context.get(),
          "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384") != 1 ||
      SSL_CTX_set_num_tickets(context.get(), 0) != 1) {
    return openssl_failed("cannot set TLS up");
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // At a listener this asks for a certificate and does without; a dialler always gets one.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context.get(), check_peer, &trust);
  return context;
}

/// The authority goes along in the chain: a joiner knows nothing but its fingerprint.
Result<void> show(SSL_CTX* context, const TlsIdentity& identity, X509* authority) {
  LH_ASSIGN(const OpensslHandle<X509> certificate,
            read_certificate(identity.certificate_pem, "this process's certificate"));
  LH_ASSIGN(const OpensslHandle<EVP_PKEY> key,
            read_private_key(identity.key_pem, "this process's key"));
  const OpensslHandle<EVP_PKEY> authority_key(X509_get_pubkey(authority));
  const std::optional<PeerName> name = name_in(*certificate);
  if (!name || name->job != identity.job ||
      X509_verify(certificate.get(), authority_key.get()) != 1) {
    ERR_clear_error();
    return invalid("this process's certificate is not of this job",
                   "have one issued by the job's authority");
  }
  if (SSL_CTX_use_certificate(context, certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_add1_chain_cert(context, authority) != 1) {
    return openssl_failed("this process's certificate and key cannot be used");
  }
  return {};
}

const char* const kOtherJobHint =
    "compare the job, and the join file that each end was started with";

/// Why this end has refused the other end's certificate.
Error refusal(long verify_result) {
  switch (verify_result) {
    case X509_V_ERR_CERT_REJECTED:
      return failed("the other end shows a certificate of another job", kOtherJobHint).error();
    case X509_V_ERR_CERT_UNTRUSTED:
      return failed("the other end's authority is not the one of the join file", kOtherJobHint)
          .error();
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return failed("the other end's certificate is not signed by this job's authority",
                    kOtherJobHint)
          .error();
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return failed("the other end's certificate has expired", "compare the clocks of both ends")
          .error();
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return failed("the other end's certificate is not valid yet",
                    "compare the clocks of both ends")
          .error();
    default:
      return failed(fmt::format("the other end's certificate is refused: {}",
                                X509_verify_cert_error_string(verify_result)))
          .error();
  }
}

}  // namespace

TlsContext::TlsContext(OpensslHandle<SSL_CTX> context, std::unique_ptr<Trust> trust)
    : context_(std::move(context)), trust_(std::move(trust)) {}
TlsContext::TlsContext(TlsContext&&) noexcept = default;
TlsContext::~TlsContext() = default;

Result<TlsContext> TlsContext::create(const std::variant<TlsIdentity, TlsJoiner>& who) {
  auto trust = std::make_unique<Trust>();
  LH_ASSIGN(OpensslHandle<SSL_CTX> context, make_context(*trust));
  if (const auto* joiner = std::get_if<TlsJoiner>(&who)) {
    trust->fingerprint = joiner->authority_fingerprint;
    if (!trust->fingerprint.starts_with("sha256:") || trust->fingerprint.size() != 7 + 64) {
      return invalid(fmt::format("`{}` is not the fingerprint of an authority", trust->fingerprint),
                     "it is sha256: and 64 hexadecimal digits");
    }
  } else {
    const auto& identity = std::get<TlsIdentity>(who);
    trust->job = identity.job;
    LH_ASSIGN(trust->authority, read_certificate(identity.authority_pem, "the job's authority"));
    LH_TRY(show(context.get(), identity, trust->authority.get()));
  }
  return TlsContext(std::move(context), std::move(trust));
}

bool TlsContext::may_listen() const {
  return trust_->authority != nullptr;
}

std::string tls_peer_name(const SSL* connection) {
  const X509* certificate = SSL_get0_peer_certificate(connection);
  if (certificate == nullptr) return "";
  const std::optional<PeerName> peer = name_in(*certificate);
  LH_CHECK(peer, "check_peer lets no certificate in that names nobody");
  return peer->name;
}

Error tls_error(const SSL* connection, unsigned long code) {
  const char* const hint = "see why in the other end's log";
  switch (ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return refusal(SSL_get_verify_result(connection));
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
      return failed("expected TLS, got something else",
                    "does the other end run without TLS, or is it another program?")
          .error();
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return failed("the other end does not speak TLS 1.3").error();
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return failed("the other end refuses this certificate: its job has another authority",
                    kOtherJobHint)
          .error();
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
      return failed("the other end refuses this certificate: it is of another job", kOtherJobHint)
          .error();
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return failed("the other end refuses this certificate: it has expired, or is not valid yet",
                    "compare the clocks of both ends")
          .error();
    default: {
      const char* reason = ERR_reason_error_string(code);
      return failed(fmt::format("TLS failed: {}", reason == nullptr ? "no reason known" : reason),
                    hint)
          .error();
    }
  }
}

}  // namespace longhaul
