// A run that is watched: the page that Prometheus scrapes while it trains, and TensorBoard's files.
#include <algorithm>

#include "executor/metrics/tensorboard.h"
#include "tests/tools/launch_fixtures.h"

namespace longhaul {
namespace {

using fixtures::LaunchFolder;

/// What the server at this port of the loopback answers to `GET /metrics`.
std::string scraped(int port) {
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string_view request = "GET /metrics HTTP/1.0\r\n\r\n";
    send(socket_, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t got = 0; (got = recv(socket_, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
  }
  close(socket_);
  return answer;
}

std::vector<std::string> event_files(const LaunchFolder& folder, const std::string& run) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / ("runs/" + run + "/tensorboard"))) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST(LaunchMetrics, a_run_is_scraped_while_it_trains_and_its_port_is_taken) {
  const LaunchFolder folder;
  Process process({"launch", "long.yaml", "--local", "--threads", "1", "--metrics", "127.0.0.1:0"},
                  folder.path());
  constexpr std::string_view kBegin = "metrics: http://127.0.0.1:";
  ASSERT_TRUE(process.wait_for_error_text("step 1/"));
  const std::string said = process.error_text();
  const int port = std::stoi(said.substr(said.find(kBegin) + kBegin.size()));

  const std::string page = scraped(port);
  EXPECT_TRUE(page.starts_with("HTTP/1.0 200 OK\r\n")) << page;
  EXPECT_TRUE(page.contains("\nlonghaul_connected_workers 4\n")) << page;
  EXPECT_TRUE(page.contains("\nlonghaul_run_info{job=\"tiny\",run=\"tiny-1\",")) << page;

  const RunResult second =
      folder.launch({"2x2.yaml", "--local", "--name", "second", "--metrics", std::to_string(port)});
  EXPECT_EQ(second.status, 1) << second.err;
  EXPECT_TRUE(second.err.contains("Address already in use")) << second.err;
  EXPECT_TRUE(second.err.contains("hint: give --metrics another port")) << second.err;
  EXPECT_FALSE(folder.has("runs/second"));
  for (const char* wrong : {"host", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"}) {
    const RunResult refused = folder.launch({"2x2.yaml", "--local", "--metrics", wrong});
    EXPECT_EQ(refused.status, 2) << wrong << refused.err;
    EXPECT_TRUE(refused.err.starts_with("error: --metrics")) << refused.err;
  }

  process.send(SIGINT);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 128 + SIGINT) << run.err;
  EXPECT_TRUE(run.err.contains("--resume runs/tiny-1 --local --metrics 127.0.0.1:0 --threads 1\n"))
      << run.err;
}

TEST(LaunchMetrics, each_launch_writes_an_event_file_of_its_own) {
  const LaunchFolder folder;
  const RunResult first = folder.launch({"1x1.yaml", "--local", "--name", "parts", "--steps", "4"});
  ASSERT_EQ(first.status, 0) << first.err;
  const RunResult second = folder.launch({"1x1.yaml", "--local", "--resume", "runs/parts"});
  ASSERT_EQ(second.status, 0) << second.err;
  const std::vector<std::string> files = event_files(folder, "parts");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(files[0].ends_with(".term-1")) << files[0];
  EXPECT_TRUE(files[1].ends_with(".term-2")) << files[1];
  // The second begins with its version, and then says that it begins again at step 5.
  const std::string bytes = read_text(files[1]);
  const std::size_t start = tensorboard_start(0).size();
  const auto without_time = [](std::string_view record) { return record.substr(21, 5); };
  EXPECT_EQ(without_time(std::string_view(bytes).substr(start)),
            without_time(tensorboard_restart(0, 5)));
  EXPECT_TRUE(bytes.contains("loss/validation"));
}

}  // namespace
}  // namespace longhaul
