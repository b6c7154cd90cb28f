// Clients and trees.
#include <string>

#include "support.h"

namespace pando_python {
namespace {

// Takes options by their names from what was given. TypeError: it has others.
class Keywords {
 public:
  explicit Keywords(py::kwargs given) : left_(std::move(given)) {}

  template <typename T>
  void Take(const char* name, T* to) {
    const py::object value = Pop(name);
    if (!value) return;
    try {
      *to = value.cast<T>();
    } catch (const py::cast_error&) {
      throw py::type_error(std::string(name) + " cannot be " + std::string(py::repr(value)));
    }
  }
  // `keep` holds what `*to` points to.
  void TakeText(const char* name, std::string* keep, const char** to) {
    const py::object value = Pop(name);
    if (!value || value.is_none()) return;
    if (!py::isinstance<py::str>(value)) throw py::type_error(std::string(name) + " is a text");
    *keep = value.cast<std::string>();
    CheckText(*keep, name);
    *to = keep->c_str();
  }
  void TakeSeconds(const char* name, int64_t* to_ms) {
    if (const py::object value = Pop(name); value && !value.is_none()) *to_ms = TimeoutMs(value);
  }
  void End() const {
    for (const auto& [name, value] : left_) {
      throw py::type_error("there is no option '" + name.cast<std::string>() + "'");
    }
  }

 private:
  py::object Pop(const char* name) {
    if (!left_.contains(name)) return {};
    py::object value = left_[name];
    PyDict_DelItemString(left_.ptr(), name);
    return value;
  }

  py::dict left_;
};

Client Connect(const std::string& registry, const py::kwargs& given) {
  CheckText(registry, "registry");
  pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
  options.registry = registry.c_str();
  Keywords keywords(given);
  std::string fabric, secret_file, service_address, device;
  keywords.TakeText("fabric", &fabric, &options.fabric);
  keywords.TakeText("secret_file", &secret_file, &options.secret_file);
  keywords.TakeSeconds("connect_timeout", &options.connect_timeout_ms);
  keywords.TakeSeconds("operation_timeout", &options.operation_timeout_ms);
  keywords.Take("memory_servers_min", &options.memory_servers_min);
  keywords.Take("index_cache_bytes", &options.index_cache_bytes);
  keywords.Take("value_places_bytes", &options.value_places_bytes);
  keywords.Take("coroutines_per_session", &options.coroutines_per_session);
  keywords.Take("techniques", &options.techniques);
  bool owner = options.owner != 0, spread_ranges = options.spread_ranges != 0;
  keywords.Take("owner", &owner);
  keywords.Take("spread_ranges", &spread_ranges);
  options.owner = owner ? 1 : 0;
  options.spread_ranges = spread_ranges ? 1 : 0;
  keywords.Take("hot_bytes", &options.hot_bytes);
  keywords.Take("log_bytes", &options.log_bytes);
  keywords.Take("service_threads", &options.service_threads);
  keywords.Take("flush_threads", &options.flush_threads);
  keywords.Take("ranges_min", &options.ranges_min);
  keywords.Take("dirty_percent", &options.dirty_percent);
  keywords.Take("lend_after_ms", &options.lend_after_ms);
  keywords.TakeText("service_address", &service_address, &options.service_address);
  keywords.TakeText("rdma_device", &device, &options.rdma_device);
  keywords.Take("rdma_port", &options.rdma_port);
  keywords.Take("rdma_gid_index", &options.rdma_gid_index);
  keywords.End();
  pando_client* client = nullptr;
  Check(Released([&] { return pando_connect(&options, &client); }));
  return Client(client);
}

Tree CreateTree(const Client& client, const std::string& name, uint64_t key_bytes_max,
                uint64_t value_bytes_max, uint64_t node_bytes, bool owned,
                uint64_t inline_value_bytes_max) {
  CheckText(name, "the tree's name");
  pando_tree_options options = PANDO_TREE_OPTIONS_INIT;
  options.key_bytes_max = key_bytes_max;
  options.value_bytes_max = value_bytes_max;
  options.node_bytes = node_bytes;
  options.inline_value_bytes_max = inline_value_bytes_max;
  options.mode = owned ? PANDO_MODE_OWNED : PANDO_MODE_SHARED;
  pando_tree* tree = nullptr;
  Check(Released([&] { return pando_create_tree(client.get(), name.c_str(), &options, &tree); }));
  return Tree(tree);
}

Tree OpenTree(const Client& client, const std::string& name) {
  CheckText(name, "the tree's name");
  pando_tree* tree = nullptr;
  Check(Released([&] { return pando_open_tree(client.get(), name.c_str(), &tree); }));
  return Tree(tree);
}

void DropTree(const Client& client, const std::string& name) {
  CheckText(name, "the tree's name");
  Check(Released([&] { return pando_drop_tree(client.get(), name.c_str()); }));
}

// What `ask(list)` gives, each element as `describe(info)` makes it of what `at(list, i, info)`
// says.
template <typename Info, typename Ask, typename Describe>
py::list ListOf(const Ask& ask, pando_code (*at)(const pando_list*, size_t, Info*),
                const Describe& describe) {
  pando_list* made = nullptr;
  Check(Released([&] { return ask(&made); }));
  const List list(made);
  size_t size = 0;
  Check(pando_list_size(made, &size));
  py::list all;
  for (size_t i = 0; i < size; ++i) {
    Info info = {};
    info.size = sizeof(info);
    Check(at(made, i, &info));
    all.append(describe(info));
  }
  return all;
}

const char* ModeOf(int64_t mode) { return mode == PANDO_MODE_OWNED ? "owned" : "shared"; }

py::dict DescribeTree(const pando_tree_info& info) {
  using namespace py::literals;
  return py::dict("name"_a = TextOf(info.name), "key_bytes_max"_a = info.key_bytes_max,
                  "value_bytes_max"_a = info.value_bytes_max, "node_bytes"_a = info.node_bytes,
                  "mode"_a = ModeOf(info.mode),
                  "inline_value_bytes_max"_a = info.inline_value_bytes_max);
}

py::dict DescribeServer(const pando_server_info& info) {
  using namespace py::literals;
  py::dict counters;
  for (uint64_t i = 0; i < info.counters_count; ++i) {
    counters[info.counters[i].name] = info.counters[i].value;
  }
  return py::dict("id"_a = info.id, "available"_a = info.available == 1,
                  "is_catalog"_a = info.is_catalog == 1, "region_bytes"_a = info.region_bytes,
                  "free_bytes"_a = info.free_bytes, "used_bytes"_a = info.used_bytes,
                  "counters"_a = counters);
}

py::dict DescribeRange(const pando_range_info& info) {
  using namespace py::literals;
  return py::dict("low"_a = BytesOf(info.low), "high"_a = BytesOf(info.high),
                  "compute_server"_a = info.compute_server, "incarnation"_a = info.incarnation,
                  "address"_a = TextOf(info.address));
}

py::dict DescribeMember(const pando_member_info& info) {
  using namespace py::literals;
  return py::dict("compute_server"_a = info.compute_server, "incarnation"_a = info.incarnation,
                  "address"_a = TextOf(info.address), "ended"_a = info.ended == 1,
                  "recovering"_a = info.recovering == 1, "ranges"_a = info.ranges,
                  "log_server"_a = info.log_server, "log_bytes"_a = info.log_bytes);
}

py::dict OwnerOf(const Client& client, const Tree& tree, const py::object& key) {
  const Bytes bytes(key);
  const py::list owners = ListOf<pando_range_info>(
      [&](pando_list** list) {
        return pando_owner_of(client.get(), tree.get(), bytes.view(), list);
      },
      pando_list_range, DescribeRange);
  py::dict owner = owners[0];
  PyDict_DelItemString(owner.ptr(), "low");
  PyDict_DelItemString(owner.ptr(), "high");
  return owner;
}

py::dict StatsOf(const Client& client) {
  pando_client_stats stats = {};
  stats.size = sizeof(stats);
  Check(Released([&] { return pando_get_client_stats(client.get(), &stats); }));
  py::dict all;
#define PANDO_STAT(name) all[#name] = stats.name
  PANDO_STAT(reads);
  PANDO_STAT(writes);
  PANDO_STAT(cas);
  PANDO_STAT(faa);
  PANDO_STAT(chains);
  PANDO_STAT(round_trips);
  PANDO_STAT(bytes_read);
  PANDO_STAT(bytes_written);
  PANDO_STAT(cache_hits);
  PANDO_STAT(cache_misses);
  PANDO_STAT(cache_bytes);
  PANDO_STAT(place_hits);
  PANDO_STAT(place_misses);
  PANDO_STAT(place_bytes);
  PANDO_STAT(splits);
  PANDO_STAT(merges);
  PANDO_STAT(torn_retries);
  PANDO_STAT(lock_attempts);
  PANDO_STAT(lock_failures);
  PANDO_STAT(handovers);
  PANDO_STAT(combined);
  PANDO_STAT(repairs);
  PANDO_STAT(owned_hits);
  PANDO_STAT(owned_misses);
  PANDO_STAT(owned_lent);
  PANDO_STAT(owned_ranges);
  PANDO_STAT(owned_hot_bytes);
  PANDO_STAT(owned_dirty_bytes);
  PANDO_STAT(owned_log_batches);
  PANDO_STAT(owned_flushed);
  PANDO_STAT(owned_forwarded);
  PANDO_STAT(owned_served);
  PANDO_STAT(owned_messages);
#undef PANDO_STAT
  return all;
}

}  // namespace

void AddClient(py::module_& module) {
  module.def("connect", &Connect, py::arg("registry"));

  py::class_<Tree>(module, "Tree")
      .def("close", [](Tree& tree) { tree.Close(); })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Tree& tree, const py::args&) { tree.Close(); })
      .def("__repr__", [](const Tree& tree) { return "<pando.Tree " + tree.name + ">"; })
      .def_property_readonly("name", [](const Tree& tree) { return TextOf(tree.name); })
      .def_readonly("key_bytes_max", &Tree::key_bytes_max)
      .def_readonly("value_bytes_max", &Tree::value_bytes_max)
      .def_readonly("inline_value_bytes_max", &Tree::inline_value_bytes_max)
      .def_readonly("node_bytes", &Tree::node_bytes)
      .def_property_readonly("mode",
                             [](const Tree& tree) { return tree.owned ? "owned" : "shared"; });

  py::class_<Client>(module, "Client")
      .def("close", [](Client& client) { client.Close(); })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Client& client, const py::args&) { client.Close(); })
      .def("_create_tree", &CreateTree, py::keep_alive<0, 1>())
      .def("open_tree", &OpenTree, py::arg("name"), py::keep_alive<0, 1>())
      .def("drop_tree", &DropTree, py::arg("name"))
      .def("tree_status",
           [](const Client& client, const Tree& tree) {
             Check(Released([&] { return pando_tree_status(client.get(), tree.get()); }));
           })
      .def("trees",
           [](const Client& client) {
             return ListOf<pando_tree_info>(
                 [&](pando_list** list) { return pando_list_trees(client.get(), list); },
                 pando_list_tree, DescribeTree);
           })
      .def("servers",
           [](const Client& client) {
             return ListOf<pando_server_info>(
                 [&](pando_list** list) { return pando_list_servers(client.get(), list); },
                 pando_list_server, DescribeServer);
           })
      .def("owner_of", &OwnerOf, py::arg("tree"), py::arg("key"))
      .def("ranges",
           [](const Client& client, const Tree& tree) {
             return ListOf<pando_range_info>(
                 [&](pando_list** list) {
                   return pando_list_ranges(client.get(), tree.get(), list);
                 },
                 pando_list_range, DescribeRange);
           })
      .def("members",
           [](const Client& client) {
             return ListOf<pando_member_info>(
                 [&](pando_list** list) { return pando_list_members(client.get(), list); },
                 pando_list_member, DescribeMember);
           })
      .def("stats", &StatsOf)
      .def_property_readonly("fenced",
                             [](const Client& client) {
                               int32_t fenced = 0;
                               Check(pando_client_fenced(client.get(), &fenced));
                               return fenced == 1;
                             })
      .def_property_readonly("compute_server_id",
                             [](const Client& client) {
                               uint16_t id = 0;
                               Check(pando_compute_server_id(client.get(), &id));
                               return id;
                             })
      .def(
          "session",
          [](const Client& client) {
            pando_session* session = nullptr;
            Check(Released([&] { return pando_open_session(client.get(), &session); }));
            return Session(session);
          },
          py::keep_alive<0, 1>());
}

}  // namespace pando_python
