#include "engine/files/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

class PackedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    static int made = 0;
    folder_ = absl::StrCat(testing::TempDir(), "/packed-", getpid(), "-", made++, "/deep");
  }
  void TearDown() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }

  std::unique_ptr<PackedFile> Open() {
    auto file = PackedFile::Open(folder_, "model.int8");
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  void Fill(PackedFile& file) {
    for (const auto& [name, bytes, value] : {std::tuple("a", 10000, 1), std::tuple("b", 4096, 2)}) {
      auto region = file.Find(name, size_t(bytes));
      ASSERT_TRUE(region.ok()) << region.status();
      ASSERT_FALSE(region->filled);
      std::memset(region->data, value, size_t(bytes));
    }
  }
  std::string path() const { return folder_ + "/model.int8.packed"; }

  std::string folder_;
};

TEST_F(PackedFileTest, WhatWasSealedIsFound) {
  {
    auto file = Open();
    ASSERT_FALSE(file->filled());
    Fill(*file);
    ASSERT_TRUE(file->Seal().ok());
  }
  auto file = Open();
  ASSERT_TRUE(file->filled());
  auto a = file->Find("a", 10000), b = file->Find("b", 4096);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(a->filled);
  EXPECT_EQ(int(a->data[9999]), 1);
  EXPECT_EQ(int(b->data[4095]), 2);
  EXPECT_EQ(file->Find("a", 9999).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file->Find("c", 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PackedFileTest, WhatWasNotSealedIsGone) {
  Fill(*Open());
  EXPECT_FALSE(Open()->filled());
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().extension(), ".lock") << entry.path();
  }
}

TEST_F(PackedFileTest, DamageIsSeen) {
  {
    auto file = Open();
    Fill(*file);
    ASSERT_TRUE(file->Seal().ok());
  }
  const auto size = std::filesystem::file_size(path());
  for (const auto at : {uintmax_t{5000}, size - 60, size - 1}) {
    std::fstream stream(path(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(int64_t(at));
    const char old = char(stream.get());
    stream.seekp(int64_t(at));
    stream.put(char(old ^ 4));
    stream.flush();
    EXPECT_FALSE(Open()->filled()) << at;
    stream.seekp(int64_t(at));
    stream.put(old);
  }
  EXPECT_TRUE(Open()->filled());
  std::filesystem::resize_file(path(), size - 8);
  EXPECT_FALSE(Open()->filled());
  std::filesystem::resize_file(path(), 0);
  auto file = Open();
  ASSERT_FALSE(file->filled());
  Fill(*file);
  EXPECT_TRUE(file->Seal().ok());
  EXPECT_TRUE(Open()->filled());
}

TEST_F(PackedFileTest, OneFillsAndTheOthersWait) {
  auto file = Open();
  ASSERT_FALSE(file->filled());
  bool found_filled = false;
  std::thread other([&] { found_filled = Open()->filled(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Fill(*file);
  ASSERT_TRUE(file->Seal().ok());
  other.join();
  EXPECT_TRUE(found_filled);
}

TEST_F(PackedFileTest, WhoGivesUpLetsTheOthersFill) {
  auto first = Open();
  auto region = first->Find("a", 100);
  ASSERT_TRUE(region.ok());
  std::memset(region->data, 7, 100);
  first->Abandon();
  auto second = Open();  // would wait for ever
  ASSERT_FALSE(second->filled());
  Fill(*second);
  first.reset();  // takes nothing of the second one's away
  ASSERT_TRUE(second->Seal().ok());
  EXPECT_TRUE(Open()->filled());
}

TEST_F(PackedFileTest, AbandonedRegionsStay) {
  auto file = Open();
  auto region = file->Find("a", 100);
  ASSERT_TRUE(region.ok());
  std::memset(region->data, 7, 100);
  file->Abandon();
  EXPECT_EQ(int(region->data[99]), 7);
  region->data[99] = std::byte{8};
  EXPECT_EQ(int(region->data[99]), 8);
}

TEST_F(PackedFileTest, AFolderThatCannotBeMadeIsNamed) {
  auto file = PackedFile::Open("/proc/nowhere", "model");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace sluice::engine
