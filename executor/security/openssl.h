// What the files of this folder share about OpenSSL, without its headers. Internal to the folder.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"

struct evp_pkey_st;
struct ssl_ctx_st;
struct x509_st;

namespace longhaul {

struct OpensslDelete {
  void operator()(evp_pkey_st* key) const;
  void operator()(ssl_ctx_st* context) const;
  void operator()(x509_st* certificate) const;
};
template <class T>
using OpensslHandle = std::unique_ptr<T, OpensslDelete>;

/// "what: the library's own words", taken from this thread's queue of errors, which it empties.
std::unexpected<Error> openssl_failed(const std::string& what);

/// `what` names the text in an error: "the authority's certificate".
Result<OpensslHandle<x509_st>> read_certificate(const std::string& pem, const std::string& what);
Result<OpensslHandle<evp_pkey_st>> read_private_key(const std::string& pem,
                                                    const std::string& what);

/// "sha256:" and 64 hexadecimal digits, of the certificate's DER bytes.
std::string fingerprint_of(const x509_st& certificate);

}  // namespace longhaul
