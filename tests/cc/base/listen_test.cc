#include "tf_rdmabatch/cc/base/listen.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <set>
#include <vector>

namespace rdmabatch {
namespace {

sockaddr_in Loopback(uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

Result<UniqueFd> Listen(const PortRange& ports, uint16_t port = 0) {
  const sockaddr_in address = Loopback(port);
  return ListenAt(reinterpret_cast<const sockaddr*>(&address), sizeof(address), ports);
}

uint16_t PortOf(const UniqueFd& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// A range of `count` ports of which none was in use a moment ago.
PortRange FreeRange(uint16_t count) {
  for (uint16_t first = 21000; first < 32000; first = static_cast<uint16_t>(first + count)) {
    const PortRange range{first, static_cast<uint16_t>(first + count - 1)};
    std::vector<UniqueFd> taken;
    for (uint32_t port = range.first; port <= range.last; ++port) {
      auto listener = Listen({}, static_cast<uint16_t>(port));
      if (listener.ok()) taken.push_back(std::move(*listener));
    }
    if (taken.size() == count) return range;
  }
  return {};
}

TEST(PortRangeTest, Parses) {
  const struct {
    const char* text;
    uint16_t first, last;
  } good[] = {{"", 0, 0}, {"20000", 20000, 20000}, {"1-65535", 1, 65535}, {"7-7", 7, 7}};
  for (const auto& c : good) {
    auto range = PortRange::Parse(c.text);
    ASSERT_TRUE(range.ok()) << c.text;
    EXPECT_EQ(range->first, c.first);
    EXPECT_EQ(range->last, c.last);
    EXPECT_EQ(range->any(), c.last == 0);
  }
  for (const char* bad : {"0", "0-10", "20-10", "1-65536", "-", "1-", "-5", "1-2-3", "a", "1 - 2",
                          "123456", "20000,20001"}) {
    auto range = PortRange::Parse(bad);
    ASSERT_FALSE(range.ok()) << bad;
    EXPECT_EQ(range.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(range.status().message().find(bad), std::string::npos) << range.status().message();
  }
}

TEST(ListenAtTest, TakesTheFirstFreePortOfARangeAndSaysWhenThereIsNone) {
  const PortRange range = FreeRange(3);
  ASSERT_FALSE(range.any());
  std::vector<UniqueFd> listeners;
  std::set<uint16_t> ports;
  for (int i = 0; i < 3; ++i) {
    auto listener = Listen(range);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    ports.insert(PortOf(*listener));
    listeners.push_back(std::move(*listener));
  }
  EXPECT_EQ(ports.size(), 3u);
  EXPECT_EQ(*ports.begin(), range.first);
  EXPECT_EQ(*ports.rbegin(), range.last);

  auto none = Listen(range);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kAlreadyExists);
  EXPECT_NE(none.status().message().find(range.ToString()), std::string::npos);

  listeners[1].reset();
  auto again = Listen(range);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(PortOf(*again), range.first + 1);
}

TEST(ListenAtTest, APortThatWasAskedForNeedNotBeOfTheRange) {
  auto probe = Listen({});
  ASSERT_TRUE(probe.ok());
  const uint16_t port = PortOf(*probe);
  probe->reset();
  auto listener = Listen({1, 2}, port);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_EQ(PortOf(*listener), port);
  EXPECT_EQ(Listen({}, port).status().code(), StatusCode::kAlreadyExists);
}

TEST(ListenAtTest, AnAddressOfAnotherHostIsRefusedAtTheFirstPort) {
  sockaddr_in address = Loopback();
  address.sin_addr.s_addr = htonl(0xc0000201);  // 192.0.2.1
  const auto listener =
      ListenAt(reinterpret_cast<const sockaddr*>(&address), sizeof(address), {1024, 65535});
  EXPECT_EQ(listener.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rdmabatch
