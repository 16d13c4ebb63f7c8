// Runs the tests, or plays the part of a peer for one of them.
#include <gtest/gtest.h>

#include "tests/cc/transport/harness.h"
#include "tests/cc/watchdog.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int status = 0;
  if (rdmabatch::testing::PeerRole::Play(&status)) return status;
  rdmabatch::testing::WatchTests(240);
  return RUN_ALL_TESTS();
}
