#include "proto/transport_security.h"

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not in PEM format"));
  }
  return text;
}

}  // namespace

absl::StatusOr<TransportSecurity> TransportSecurity::Read(const std::string& folder) {
  TransportSecurity security;
  if (folder.empty()) return security;
  for (const auto& [name, to] : {std::pair{"ca.pem", &security.authority_},
                                 std::pair{"cert.pem", &security.certificate_}, std::pair{"key.pem", &security.key_}}) {
    absl::StatusOr<std::string> text = ReadPem(absl::StrCat(folder, "/", name));
    if (!text.ok()) return text.status();
    *to = *std::move(text);
  }
  return security;
}

std::shared_ptr<grpc::ServerCredentials> TransportSecurity::server() const {
  if (!on()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = authority_;
  options.pem_key_cert_pairs.push_back({key_, certificate_});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> TransportSecurity::client(grpc::ChannelArguments& arguments) const {
  if (!on()) return grpc::InsecureChannelCredentials();
  arguments.SetSslTargetNameOverride(kName);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority_;
  options.pem_private_key = key_;
  options.pem_cert_chain = certificate_;
  return grpc::SslCredentials(options);
}

}  // namespace sluice
