// A fixture on both sides of the Storage door: a folder on the disk (true), and one in memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"

namespace longhaul::fixtures {

class StorageSides : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      storage_ = std::make_unique<RealStorage>();
      std::string name = testing::TempDir() + "longhaul-sides-XXXXXX";
      ASSERT_NE(::mkdtemp(name.data()), nullptr);
      folder_ = name;
    } else {
      storage_ = std::make_unique<SimStorage>();
      folder_ = "/work";
      ASSERT_TRUE(storage_->make_folder(folder_));
    }
  }
  void TearDown() override {
    if (GetParam()) std::filesystem::remove_all(folder_);
  }

  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  std::unique_ptr<Storage> storage_;
  std::string folder_;
};

}  // namespace longhaul::fixtures
