// What comes from a peer is checked byte by byte; needs no device.
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tf_rdmabatch/cc/transport/verbs/address.h"
#include "tf_rdmabatch/cc/transport/verbs/memlock.h"

namespace rdmabatch::verbs {
namespace {

Offer SomeOffer(const std::string& ip) {
  Offer offer;
  offer.fabric = Fabric::kIwarp;
  SocketAddress::Parse(ip)->FillOffer(&offer);
  offer.port = 4660;
  for (size_t i = 0; i < offer.cookie.size(); ++i) offer.cookie[i] = static_cast<uint8_t>(200 + i);
  return offer;
}

TEST(VerbsWire, OfferComesBack) {
  for (const char* ip : {"10.9.1.1", "fd00::17"}) {
    const Offer offer = SomeOffer(ip);
    Result<Offer> parsed = Offer::Parse(offer.Encode());
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->fabric, offer.fabric);
    EXPECT_EQ(parsed->port, 4660);
    EXPECT_EQ(parsed->cookie, offer.cookie);
    EXPECT_EQ(SocketAddress::FromOffer(*parsed).ToString(), ip);
  }
}

TEST(VerbsWire, OfferHasTheDocumentedBytes) {
  const std::string bytes = SomeOffer("10.9.1.1").Encode();
  ASSERT_EQ(bytes.size(), Offer::kBytes);
  EXPECT_EQ(bytes.substr(0, 12), std::string("RV\1\2\4\0\x34\x12\x0a\x09\1\1", 12));
}

TEST(VerbsWire, BadOffersAreRefused) {
  const std::string good = SomeOffer("10.9.1.1").Encode();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Offer::Parse(good.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(Offer::Parse(good + '\0').ok());
  // Magic, version, fabric, family, reserved byte, padding of the address.
  for (size_t position : {0, 1, 2, 3, 4, 5, 12, 23}) {
    std::string bad = good;
    bad[position] = 99;
    Result<Offer> parsed = Offer::Parse(bad);
    ASSERT_FALSE(parsed.ok()) << position;
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss);
  }
  std::string no_port = good;
  no_port[6] = no_port[7] = 0;
  EXPECT_FALSE(Offer::Parse(no_port).ok());
}

TEST(VerbsWire, DescriptorComesBack) {
  Descriptor descriptor;
  descriptor.address = 0x7f0011223344;
  descriptor.bytes = uint64_t{1} << 33;
  descriptor.key = 0xfedcba98;
  Result<Descriptor> parsed = Descriptor::Parse(descriptor.Encode());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->address, descriptor.address);
  EXPECT_EQ(parsed->bytes, descriptor.bytes);
  EXPECT_EQ(parsed->key, descriptor.key);
}

TEST(VerbsWire, BadDescriptorsAreRefused) {
  Descriptor descriptor;
  descriptor.address = 4096;
  descriptor.bytes = 4096;
  const std::string good = descriptor.Encode();
  ASSERT_TRUE(Descriptor::Parse(good).ok());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Descriptor::Parse(good.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(Descriptor::Parse(good + '\0').ok());
  for (size_t position : {0, 1, 2, 3}) {
    std::string bad = good;
    bad[position] = 99;
    EXPECT_FALSE(Descriptor::Parse(bad).ok()) << position;
  }
  descriptor.bytes = 0;
  EXPECT_FALSE(Descriptor::Parse(descriptor.Encode()).ok());
  descriptor.bytes = std::numeric_limits<uint64_t>::max();  // wraps around
  EXPECT_FALSE(Descriptor::Parse(descriptor.Encode()).ok());
}

TEST(VerbsWire, ConnectRequestMayBePadded) {
  ConnectRequest request;
  request.cookie = SomeOffer("10.9.1.1").cookie;
  const std::string good = request.Encode();
  Result<ConnectRequest> padded = ConnectRequest::Parse(good + std::string(36, '\0'));
  ASSERT_TRUE(padded.ok());
  EXPECT_EQ(padded->cookie, request.cookie);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ConnectRequest::Parse(good.substr(0, length)).ok()) << length;
  }
}

TEST(VerbsAddress, OnlyNumericAddresses) {
  for (const char* bad : {"", "localhost", "10.9.1", "10.9.1.1.1", "fd00:::1"}) {
    Result<SocketAddress> parsed = SocketAddress::Parse(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(SocketAddress::Parse("127.8.0.1")->is_loopback());
  EXPECT_TRUE(SocketAddress::Parse("::1")->is_loopback());
  EXPECT_FALSE(SocketAddress::Parse("10.9.1.1")->is_loopback());
}

TEST(VerbsMemlock, CountsWhatIsPinnedAlready) {
  Memlock memlock;
  memlock.limit = 8 << 20;
  memlock.pinned = 3 << 20;
  EXPECT_TRUE(memlock.Check(5 << 20).ok());
  const Status refused = memlock.Check((5 << 20) + 1);
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  for (const char* part : {"8 MiB", "3 MiB", "6 MiB", "ulimit -l", "limits.conf", "LimitMEMLOCK"}) {
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  }
  memlock.pinned = 9 << 20;
  EXPECT_FALSE(memlock.Check(1).ok());
  memlock.limit = Memlock::kUnlimited;
  EXPECT_TRUE(memlock.Check(uint64_t{1} << 40).ok());
}

}  // namespace
}  // namespace rdmabatch::verbs
