// The authority of a job: what it certifies, and what it refuses to.

#include "executor/security/authority.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace longhaul {
namespace {

TEST(JobAuthority, its_fingerprint_is_the_sha256_of_the_certificates_der_bytes) {
  const JobAuthority authority = JobAuthority::create(1).value();
  // PEM is the DER bytes in base64 between two lines.
  std::string base64;
  std::size_t begin = 0;
  while (begin < authority.certificate_pem().size()) {
    const std::size_t end = authority.certificate_pem().find('\n', begin);
    const std::string line = authority.certificate_pem().substr(begin, end - begin);
    if (!line.starts_with("-----")) base64 += line;
    begin = end + 1;
  }
  std::string der(base64.size(), '\0');
  const int decoded = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(der.data()),
                                      reinterpret_cast<const unsigned char*>(base64.data()),
                                      static_cast<int>(base64.size()));
  ASSERT_GT(decoded, 0);
  // EVP_DecodeBlock counts the padding as bytes.
  der.resize(static_cast<std::size_t>(decoded) -
             static_cast<std::size_t>(std::count(base64.begin(), base64.end(), '=')));
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(der.data()), der.size(), digest);
  std::string expected = "sha256:";
  for (const unsigned char byte : digest) expected += fmt::format("{:02x}", byte);
  EXPECT_EQ(authority.fingerprint(), expected);
}

TEST(JobAuthority, two_of_one_job_are_different) {
  const JobAuthority first = JobAuthority::create(1).value();
  const JobAuthority second = JobAuthority::create(1).value();
  EXPECT_NE(first.fingerprint(), second.fingerprint());
}

TEST(JobAuthority, names_are_short_and_plain) {
  const JobAuthority authority = JobAuthority::create(1).value();
  const KeyPair key = make_key().value();
  const std::string longest(kCertificateNameMax, 'x');
  for (const std::string& name : {std::string("a"), std::string("east-1.gpu_0"), longest}) {
    EXPECT_TRUE(authority.issue(key.public_pem, name)) << name;
  }
  for (const std::string& name :
       {std::string(), longest + "x", std::string("a/b"), std::string("a,URI:longhaul://b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\xc3\xa9")}) {
    const Result<std::string> refused = authority.issue(key.public_pem, name);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_FALSE(refused.error().hint.empty());
  }
}

std::string public_pem_of(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PUBKEY(bio, key);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  EVP_PKEY_free(key);
  return pem;
}

TEST(JobAuthority, keys_are_of_p256_and_nothing_else) {
  const JobAuthority authority = JobAuthority::create(1).value();
  struct Case {
    std::string pem;
    std::string error;
  };
  const std::string whole = make_key().value().public_pem;
  for (const Case& bad : {
           Case{"", "cannot read the public key"},
           Case{"no key at all", "cannot read the public key"},
           Case{whole.substr(0, whole.size() / 2), "cannot read the public key"},
           Case{make_key().value().private_pem, "cannot read the public key"},
           Case{std::string((64 << 10) + 1, '-'), "longer than 64 KiB"},
           Case{public_pem_of(EVP_EC_gen("P-384")), "not one of ECDSA on P-256"},
           Case{public_pem_of(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")),
                "not one of ECDSA on P-256"},
       }) {
    const Result<std::string> refused = authority.issue(bad.pem, "east");
    ASSERT_FALSE(refused) << bad.pem;
    EXPECT_NE(refused.error().message.find(bad.error), std::string::npos)
        << refused.error().message;
  }
}

}  // namespace
}  // namespace longhaul
