// Owners of OpenSSL's objects.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace vpod::base {

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};

using OwnedBio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using OwnedCertificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;

}  // namespace vpod::base
