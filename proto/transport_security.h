// Optional TLS between the processes of a cluster: both ends of a gRPC connection show a certificate of the cluster's
// own authority (mutual TLS). Covers Work streams (router to worker) and the control links of KV transfers.
//
// Limits: the bytes of KV blocks go over their own channel, which is not encrypted; their sender is authenticated and
// each piece is checksummed. The router's public port is not covered: clients come there.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace sluice {

class TransportSecurity {
 public:
  // What every certificate must be made out to (a DNS name in its subjectAltName), wherever the process runs.
  static constexpr char kName[] = "sluice.cluster";

  TransportSecurity() = default;  // plain connections

  // Reads ca.pem, cert.pem and key.pem of a folder; an empty path means plain connections. The error names the file.
  static absl::StatusOr<TransportSecurity> Read(const std::string& folder);

  bool on() const { return !certificate_.empty(); }

  std::shared_ptr<grpc::ServerCredentials> server() const;
  // Also sets what the credentials need of the channel's arguments.
  std::shared_ptr<grpc::ChannelCredentials> client(grpc::ChannelArguments& arguments) const;

 private:
  std::string authority_, certificate_, key_;  // PEM
};

}  // namespace sluice
