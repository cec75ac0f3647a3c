#include "cli/channel.h"

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/exit_codes.h"
#include "grpcpp/support/client_interceptor.h"

namespace sluice::cli {
namespace {

const char* CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::CANCELLED:
      return "CANCELLED";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case grpc::StatusCode::NOT_FOUND:
      return "NOT_FOUND";
    case grpc::StatusCode::ALREADY_EXISTS:
      return "ALREADY_EXISTS";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case grpc::StatusCode::ABORTED:
      return "ABORTED";
    case grpc::StatusCode::OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case grpc::StatusCode::INTERNAL:
      return "INTERNAL";
    case grpc::StatusCode::UNAVAILABLE:
      return "UNAVAILABLE";
    case grpc::StatusCode::DATA_LOSS:
      return "DATA_LOSS";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    default:
      return "UNKNOWN";
  }
}

// Puts the key of the API before every call. Call credentials would do it, but only over TLS.
class KeyInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit KeyInterceptor(const std::string& key) : value_("Bearer " + key) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", value_});
    }
    methods->Proceed();
  }

 private:
  const std::string value_;
};

class KeyInterceptorFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeyInterceptorFactory(std::string key) : key_(std::move(key)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new KeyInterceptor(key_);
  }

 private:
  const std::string key_;
};

std::shared_ptr<grpc::Channel> Create(const std::string& address, const grpc::ChannelArguments& arguments) {
  const std::string key = ApiKey();
  if (key.empty()) return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<KeyInterceptorFactory>(key));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, grpc::InsecureChannelCredentials(), arguments,
                                                                 std::move(factories));
}

absl::Status NobodyThere(const std::string& address, const char* why) {
  return absl::UnavailableError(absl::StrCat("no router answers at ", address, " (", why,
                                             "); start one with deploy/up, or name another with --router HOST:PORT"));
}

}  // namespace

std::string ApiKey() {
  const char* key = std::getenv("SLUICE_API_KEY");
  return key == nullptr ? "" : key;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address, absl::Duration patience,
                                                       bool own_connection) {
  grpc::ChannelArguments arguments;
  if (own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  std::shared_ptr<grpc::Channel> channel = Create(address, arguments);
  const auto deadline = absl::ToChronoTime(absl::Now() + patience);
  for (grpc_connectivity_state state = channel->GetState(true); state != GRPC_CHANNEL_READY;
       state = channel->GetState(true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return NobodyThere(address, "connection refused or unknown host");
    if (!channel->WaitForStateChange(state, deadline)) return NobodyThere(address, "no answer in time");
  }
  return channel;
}

std::string DescribeError(const grpc::Status& status) {
  std::string text = absl::StrCat(CodeName(status.error_code()), ": ", status.error_message());
  return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}});
}

int ExitCodeFor(const grpc::Status& status) {
  if (status.ok()) return kExitOk;
  return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ? kExitUsage : kExitServer;
}

}  // namespace sluice::cli
