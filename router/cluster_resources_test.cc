// What a router shows over HTTP beside the API, and the page's heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "router/page.h"
#include "router/page_files.h"
#include "router/testing/front_world.h"
#include "router/testing/http_client.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class ClusterResourcesTest : public FrontWorld {
 protected:
  void Start() {
    ServerOptions options;
    options.http.port = 0;
    options.http.keys = *ApiKeys::Parse("secret-key", "keys");
    key_ = "secret-key";
    StartRouter(options);
  }
  HttpAnswer Get(const std::string& path, const std::string& headers = "Authorization: Bearer secret-key\r\n") {
    return HttpClient(router_->http_port()).Call("GET", path, "", headers);
  }
};

TEST_F(ClusterResourcesTest, RequestsAndTheStateAsJson) {
  Start();
  auto worker = StartWorker();
  HttpClient client(router_->http_port());
  ASSERT_EQ(client
                .Call("POST", "/v1/completions", R"({"prompt": [5, 6], "max_tokens": 1})",
                      "Authorization: Bearer secret-key\r\nX-Request-Id: a/b&c\r\n")
                .code,
            200);
  Json list = Json::parse(Get("/cluster/requests").body);
  ASSERT_EQ(list["requests"].size(), 1u);
  EXPECT_EQ(list["requests"][0]["request_id"], "a/b&c");
  EXPECT_EQ(list["requests"][0]["state"], "done");
  EXPECT_GT(list["requests"][0]["timing"]["timeline"].size(), 1u);
  list = Json::parse(Get("/cluster/requests?timeline=0&id=a%2Fb%26c").body);
  ASSERT_EQ(list["requests"].size(), 1u);
  EXPECT_EQ(list["requests"][0]["timing"]["timeline"].size(), 0u);
  EXPECT_EQ(Json::parse(Get("/cluster/requests?id=other").body)["requests"].size(), 0u);
  EXPECT_EQ(Get("/cluster/requests?limit=0").code, 400);
  EXPECT_EQ(Get("/cluster/requests?limit=1&limit=x").code, 200) << "the first one counts";
  const Json state = Json::parse(Get("/cluster/state").body);
  EXPECT_EQ(state["workers"][0]["role"], "ROLE_BOTH");
  EXPECT_EQ(state["queued"], 0);
  EXPECT_THAT(Get("/metrics", "").body, HasSubstr("sluice_request_success_total{finished_reason=\"length\"} 1\n"));
}

TEST_F(ClusterResourcesTest, WhatIsGuardedAndWhatIsNot) {
  Start();
  for (const char* path : {"/cluster/state", "/cluster/requests"}) EXPECT_EQ(Get(path, "").code, 401) << path;
  for (const auto& [path, resource] : PageResources()) {
    const HttpAnswer answer = Get(path, "");
    EXPECT_EQ(answer.code, 200) << path;
    EXPECT_THAT(answer.headers.at("content-security-policy"), HasSubstr("default-src 'none'; ")) << path;
    EXPECT_EQ(answer.headers.at("content-type"), resource.type) << path;
  }
}

// Whatever the page loads is embedded, and all that is embedded is loaded.
TEST(Page, LoadsItsOwnFilesAndNoOthers) {
  std::string all;
  for (const PageFile& file : PageFiles()) all += file.text;
  for (const PageFile& file : PageFiles()) {
    if (file.name == "index.html") continue;
    const bool named = all.find("/page/" + std::string(file.name)) != std::string::npos ||
                       all.find("\"./" + std::string(file.name)) != std::string::npos;
    EXPECT_TRUE(named) << file.name;
  }
  for (const char* foreign : {"https://", "innerHTML", "style=\"", "onclick=", "eval("}) {
    EXPECT_EQ(all.find(foreign), std::string::npos) << foreign;
  }
}

}  // namespace
}  // namespace sluice::router
