// How many keys a second MultiGet reads in C++, for multi_get_rate.py: of all rounds the best.
//   multi_get_rate REGISTRY TREE KEYS ROUNDS
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "pando/client.h"

int main(int argc, char** argv) {
  if (argc != 5) return std::cerr << "multi_get_rate REGISTRY TREE KEYS ROUNDS\n", 2;
  const auto client = pando::Client::Connect({.registry = argv[1]});
  if (!client.ok()) return std::cerr << client.status() << "\n", 1;
  const auto tree = (*client)->OpenTree(argv[2]);
  if (!tree.ok()) return std::cerr << tree.status() << "\n", 1;
  const auto session = (*client)->NewSession();
  if (!session.ok()) return std::cerr << session.status() << "\n", 1;
  std::vector<std::string> keys;
  for (int n = 0; n < std::atoi(argv[3]); ++n) {
    std::string key = std::to_string(n);
    keys.push_back(std::string(8 - key.size(), '0') + key);
  }
  double best = 0;
  for (int round = 0; round < std::atoi(argv[4]); ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const auto values = (*session)->MultiGet(**tree, keys);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    for (const auto& value : values) {
      if (!value.ok()) return std::cerr << value.status() << "\n", 1;
    }
    best = std::max(best, static_cast<double>(keys.size()) / time.count());
  }
  std::cout << best << "\n";
}
