// A job's own certificate authority, and what a process needs to prove that it belongs to a job.
//
// The coordinator makes one JobAuthority in memory when a job starts; its private key never leaves
// it. A process makes its own key, has the public half certified under a name (a join token decides
// whether it may), and keeps the result as its TlsIdentity. A certificate says who it is by one
// subject alternative name, the URI `longhaul://JOB/NAME`: the job as 16 hexadecimal digits, the
// name as it was issued. Nothing else in it is read, and no other authority is ever trusted.
//
// Keys are ECDSA on P-256. All functions are pure but for random numbers; any thread, a
// JobAuthority by one at a time. What OpenSSL refuses comes back with its own words.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

/// There is no renewal: a run that lasts longer than its certificates cannot reconnect.
inline constexpr Seconds kCertificateLifetime{30 * 86400.0};
inline constexpr Seconds kAuthorityLifetime{60 * 86400.0};
/// Certificates count as valid from so long before they are made: clocks of machines differ.
inline constexpr Seconds kClockTolerance{86400.0};
/// Names are 1 to so many of `A-Z a-z 0-9 . _ -`.
inline constexpr std::size_t kCertificateNameMax = 128;

struct KeyPair {
  std::string private_pem;
  std::string public_pem;
};
Result<KeyPair> make_key();

/// Who a process is: all that a TLS transport needs.
struct TlsIdentity {
  std::uint64_t job = 0;
  std::string authority_pem;
  std::string certificate_pem;
  std::string key_pem;
};

class JobAuthority {
 public:
  static Result<JobAuthority> create(std::uint64_t job);

  std::uint64_t job() const { return job_; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  /// "sha256:" and 64 hexadecimal digits, of the certificate's DER bytes: what a join file carries.
  const std::string& fingerprint() const { return fingerprint_; }

  /// A certificate (PEM) for both ends of a connection. Refuses a name or a key that is not as said
  /// above; both may come from the wire. `lifetime` is for tests: less than 0 has expired.
  Result<std::string> issue(const std::string& public_key_pem, const std::string& name,
                            Seconds lifetime = kCertificateLifetime) const;

 private:
  JobAuthority() = default;
  std::uint64_t job_ = 0;
  std::string certificate_pem_;
  std::string key_pem_;
  std::string fingerprint_;
};

/// What JobAuthority makes certificates with. Tests make false ones with it.
struct CertificateRequest {
  std::string public_key_pem;
  std::string common_name;
  std::string uri;            // the subject alternative name; empty: none
  bool is_authority = false;  // may sign certificates, but no authorities
  std::string issuer_pem;     // empty: signed by itself
  std::string issuer_key_pem;
  Seconds lifetime = kCertificateLifetime;  // from now
};
Result<std::string> sign_certificate(const CertificateRequest& request);

/// `longhaul://JOB/NAME`.
std::string certificate_uri(std::uint64_t job, const std::string& name);

}  // namespace longhaul
