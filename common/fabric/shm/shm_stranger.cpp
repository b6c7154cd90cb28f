#include "common/fabric/shm/shm_stranger.h"

#include <sys/stat.h>

#include <vector>

#include "common/base/clock.h"
#include "common/fabric/body.h"
#include "common/fabric/shm/shm_frame.h"
#include "gtest/gtest.h"

namespace pando {

UniqueFd DialAsStranger(const std::string& path) {
  auto socket = ConnectTo(path, RealClock().NowNs() + kSecondNs);
  EXPECT_TRUE(socket.ok()) << socket.status();
  return socket.ok() ? *std::move(socket) : UniqueFd();
}

std::optional<std::string> Hear(const UniqueFd& socket) {
  EXPECT_TRUE(WaitReadable(socket.get(), RealClock().NowNs() + 10 * kSecondNs));
  std::vector<std::byte> buffer(kShmFrameBytesMax);
  size_t bytes = 0;
  if (ReceiveMessage(socket.get(), buffer, &bytes) != ReceiveResult::kMessage) return {};
  return std::string(reinterpret_cast<const char*>(buffer.data()), bytes);
}

absl::Status HearRefusal(const UniqueFd& socket) {
  const std::optional<std::string> answer = Hear(socket);
  if (!answer.has_value()) return absl::CancelledError("closed");
  const auto frame = ParseShmFrame(*answer);
  EXPECT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->type, ShmFrameType::kError);
  EXPECT_FALSE(Hear(socket).has_value());
  return ParseStatus(frame->body);
}

void ExpectOwnersOnly(const std::string& path) {
  struct stat file;
  ASSERT_EQ(stat(path.c_str(), &file), 0) << path;
  EXPECT_EQ(file.st_mode & 0777, 0600u) << path;
}

}  // namespace pando
