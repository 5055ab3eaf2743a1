#include "executor/security/authority.h"

#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <span>

#include "executor/security/openssl.h"

namespace longhaul {
namespace {

constexpr std::size_t kPemMax = 64 << 10;

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioHandle = std::unique_ptr<BIO, BioFree>;

Result<BioHandle> reader(const std::string& pem, const std::string& what) {
  if (pem.size() > kPemMax) return invalid(fmt::format("{} is longer than 64 KiB", what));
  BioHandle bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!bio) return openssl_failed(what);
  return bio;
}

/// Passwords are never asked for at the terminal.
int no_password(char*, int, int, void*) {
  return -1;
}

template <class Write>
Result<std::string> written(const std::string& what, Write write) {
  const BioHandle bio(BIO_new(BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return openssl_failed(what);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

Result<OpensslHandle<EVP_PKEY>> read_public_key(const std::string& pem) {
  LH_ASSIGN(const BioHandle bio, reader(pem, "the public key"));
  OpensslHandle<EVP_PKEY> key(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_password, nullptr));
  if (!key) return openssl_failed("cannot read the public key");
  char group[64] = "";
  if (EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_EC ||
      EVP_PKEY_get_group_name(key.get(), group, sizeof group, nullptr) != 1 ||
      std::string(group) != "prime256v1") {
    return invalid("the public key is not one of ECDSA on P-256", "make it with make_key");
  }
  return key;
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kCertificateNameMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

bool set_times(X509* certificate, Seconds lifetime, const X509* issuer) {
  const std::time_t now = std::time(nullptr);
  const auto at = [now](Seconds offset) {
    return static_cast<std::time_t>(static_cast<double>(now) + offset.value());
  };
  if (ASN1_TIME_set(X509_getm_notBefore(certificate), at(Seconds() - kClockTolerance)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate), at(lifetime)) == nullptr)
    return false;
  // A certificate that outlives its issuer only promises too much.
  return issuer == nullptr ||
         ASN1_TIME_compare(X509_get0_notAfter(certificate), X509_get0_notAfter(issuer)) <= 0 ||
         X509_set1_notAfter(certificate, X509_get0_notAfter(issuer)) == 1;
}

/// Positive and, for all practical purposes, never drawn twice.
bool set_serial(X509* certificate) {
  unsigned char bytes[8];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
  std::uint64_t serial = 0;
  for (const unsigned char byte : bytes) serial = serial << 8 | byte;
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1 | 1) == 1;
}

bool set_name(X509* certificate, const std::string& common_name) {
  const auto* text = reinterpret_cast<const unsigned char*>(common_name.data());
  // OpenSSL limits a common name to 64 characters; nobody reads it but people.
  const int size = static_cast<int>(std::min<std::size_t>(common_name.size(), 64));
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, text,
                                    size, -1, 0) == 1;
}

bool add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool add_extensions(X509* certificate, X509* issuer, const CertificateRequest& request) {
  const auto add = [&](int nid, const std::string& value) {
    return add_extension(certificate, issuer, nid, value);
  };
  if (!add(NID_subject_key_identifier, "hash") || !add(NID_authority_key_identifier, "keyid"))
    return false;
  if (request.is_authority) {
    return add(NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           add(NID_key_usage, "critical,keyCertSign");
  }
  return add(NID_basic_constraints, "critical,CA:FALSE") &&
         add(NID_key_usage, "critical,digitalSignature") &&
         add(NID_ext_key_usage, "clientAuth,serverAuth") &&
         (request.uri.empty() || add(NID_subject_alt_name, "URI:" + request.uri));
}

}  // namespace

void OpensslDelete::operator()(EVP_PKEY* key) const {
  EVP_PKEY_free(key);
}
void OpensslDelete::operator()(SSL_CTX* context) const {
  SSL_CTX_free(context);
}
void OpensslDelete::operator()(X509* certificate) const {
  X509_free(certificate);
}

std::unexpected<Error> openssl_failed(const std::string& what) {
  std::string words;
  while (const unsigned long code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    if (words.empty() && reason != nullptr) words = reason;  // the first is the cause
  }
  return failed(fmt::format("{}: {}", what, words.empty() ? "OpenSSL does not say why" : words));
}

Result<OpensslHandle<X509>> read_certificate(const std::string& pem, const std::string& what) {
  LH_ASSIGN(const BioHandle bio, reader(pem, what));
  OpensslHandle<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
  if (!certificate) return openssl_failed("cannot read " + what);
  return certificate;
}

Result<OpensslHandle<EVP_PKEY>> read_private_key(const std::string& pem, const std::string& what) {
  LH_ASSIGN(const BioHandle bio, reader(pem, what));
  OpensslHandle<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (!key) return openssl_failed("cannot read " + what);
  return key;
}

std::string fingerprint_of(const X509& certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  // It fails only where memory is out; no certificate has the text that is left then.
  if (X509_digest(&certificate, EVP_sha256(), digest, &size) != 1) return "";
  std::string text = "sha256:";
  for (const unsigned char byte : std::span(digest, size)) text += fmt::format("{:02x}", byte);
  return text;
}

Result<KeyPair> make_key() {
  const OpensslHandle<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (!key) return openssl_failed("cannot make a key");
  KeyPair pair;
  LH_ASSIGN(pair.private_pem, written("cannot write a private key", [&](BIO* bio) {
              return PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr,
                                                   nullptr);
            }));
  LH_ASSIGN(pair.public_pem, written("cannot write a public key", [&](BIO* bio) {
              return PEM_write_bio_PUBKEY(bio, key.get());
            }));
  return pair;
}

Result<std::string> sign_certificate(const CertificateRequest& request) {
  LH_ASSIGN(const OpensslHandle<EVP_PKEY> key, read_public_key(request.public_key_pem));
  LH_ASSIGN(const OpensslHandle<EVP_PKEY> issuer_key,
            read_private_key(request.issuer_key_pem, "the issuer's key"));
  OpensslHandle<X509> issuer_certificate;
  if (!request.issuer_pem.empty()) {
    LH_ASSIGN(issuer_certificate, read_certificate(request.issuer_pem, "the issuer's certificate"));
  }
  const OpensslHandle<X509> certificate(X509_new());
  X509* const issuer = issuer_certificate ? issuer_certificate.get() : certificate.get();
  if (!certificate || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      X509_set_pubkey(certificate.get(), key.get()) != 1 || !set_serial(certificate.get()) ||
      !set_times(certificate.get(), request.lifetime, issuer_certificate.get()) ||
      !set_name(certificate.get(), request.common_name) ||
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer)) != 1 ||
      !add_extensions(certificate.get(), issuer, request) ||
      X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) == 0) {
    return openssl_failed("cannot make a certificate");
  }
  return written("cannot write a certificate",
                 [&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
}

std::string certificate_uri(std::uint64_t job, const std::string& name) {
  return fmt::format("longhaul://{:016x}/{}", job, name);
}

Result<JobAuthority> JobAuthority::create(std::uint64_t job) {
  JobAuthority authority;
  LH_ASSIGN(const KeyPair key, make_key());
  authority.job_ = job;
  authority.key_pem_ = key.private_pem;
  LH_ASSIGN(authority.certificate_pem_,
            sign_certificate({.public_key_pem = key.public_pem,
                              .common_name = fmt::format("longhaul job {:016x}", job),
                              .uri = "",
                              .is_authority = true,
                              .issuer_pem = "",
                              .issuer_key_pem = key.private_pem,
                              .lifetime = kAuthorityLifetime}));
  LH_ASSIGN(const OpensslHandle<X509> certificate,
            read_certificate(authority.certificate_pem_, "the authority's certificate"));
  authority.fingerprint_ = fingerprint_of(*certificate);
  return authority;
}

Result<std::string> JobAuthority::issue(const std::string& public_key_pem, const std::string& name,
                                        Seconds lifetime) const {
  if (!is_name(name)) {
    return invalid("the name for a certificate is empty, too long or has other characters",
                   fmt::format("use 1 to {} of A-Z a-z 0-9 . _ -", kCertificateNameMax));
  }
  return sign_certificate({.public_key_pem = public_key_pem,
                           .common_name = name,
                           .uri = certificate_uri(job_, name),
                           .is_authority = false,
                           .issuer_pem = certificate_pem_,
                           .issuer_key_pem = key_pem_,
                           .lifetime = lifetime});
}

}  // namespace longhaul
