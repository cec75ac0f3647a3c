#include "cli/chat/conversation.h"

#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

TEST(ConversationTest, MessagesInOrder) {
  Conversation talk("be brief");
  talk.Ask("one?");
  talk.Answer("1");
  talk.Ask("two?");
  EXPECT_EQ(talk.Messages(),
            json::parse(R"([{"role": "system", "content": "be brief"}, {"role": "user", "content": "one?"},
                                            {"role": "assistant", "content": "1"}, {"role": "user", "content": "two?"}])"));
  talk.TakeBack();
  EXPECT_EQ(talk.Messages().size(), 3u);
  talk.SetSystem("");
  EXPECT_EQ(talk.Messages().size(), 2u);
  talk.Reset();
  EXPECT_TRUE(talk.empty());
  EXPECT_EQ(talk.Messages(), json::array());
}

TEST(ConversationTest, CommandsAndWhatIsNone) {
  EXPECT_EQ(std::get<Command>(ReadChatInput("/reset", false)).name, "reset");
  EXPECT_EQ(std::get<Command>(ReadChatInput("/system  You are a pirate. ", false)).argument, "You are a pirate.");
  EXPECT_EQ(std::get<Command>(ReadChatInput("/system", false)).argument, "");
  EXPECT_EQ(std::get<Say>(ReadChatInput("//etc is a folder", false)).text, "/etc is a folder");
  EXPECT_EQ(std::get<Say>(ReadChatInput("a / b", false)).text, "a / b");
  EXPECT_EQ(std::get<Say>(ReadChatInput("/quit", true)).text, "/quit") << "the rest of a line";
  EXPECT_EQ(std::get<Continue>(ReadChatInput("first\\", false)).text, "first");
  EXPECT_NE(std::get<Mistake>(ReadChatInput("/quti", false)).what.find("/quti"), std::string::npos);
  EXPECT_NE(std::get<Mistake>(ReadChatInput("/save", false)).what.find("file"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
