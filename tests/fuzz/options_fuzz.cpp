// SPDX-License-Identifier: Apache-2.0
// A plugin's tables are read before anything about the plugin is trusted: check_component() names
// the faults of any table whose pointers can be followed. The input says what the tables hold.
#include <deque>
#include <string>
#include <vector>

#include "core/plugin/checks.hpp"
#include "input.hpp"

namespace {

// Reads the input from front to back; zeros after its end.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint32_t number() {
    uint32_t value = byte();
    return value < 0xf0 ? value : value << 24U | uint32_t{byte()} << 8U | byte();
  }
  // Up to the next NUL.
  std::string text() {
    std::string value;
    while (at_ < size_ && data_[at_] != 0) {
      value.push_back(static_cast<char>(data_[at_++]));
    }
    ++at_;
    return value;
  }
  bool is_done() const { return at_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// Owns what the tables point to.
class Tables {
 public:
  explicit Tables(Reader& reader) : reader_(reader) {}

  // NULL, or a text that lives as long as this.
  const char* text() {
    const bool is_null = reader_.byte() == 0;
    return is_null ? nullptr : texts_.emplace_back(reader_.text()).c_str();
  }

  const char* const* list() {
    const uint32_t count = reader_.byte() % 8;
    if (count == 0) {
      return nullptr;
    }
    auto& items = lists_.emplace_back();
    for (uint32_t i = 1; i < count; ++i) {
      items.push_back(texts_.emplace_back(reader_.text()).c_str());
    }
    items.push_back(nullptr);
    return items.data();
  }

  lb_options options(int depth) {
    const uint32_t count = reader_.is_done() || depth > 20 ? 0 : reader_.byte() % 6;
    std::vector<lb_option> items;
    for (uint32_t i = 0; i < count; ++i) {
      items.push_back(option(depth));
    }
    lb_options table = {sizeof(lb_option), count, options_.emplace_back(std::move(items)).data()};
    damage(table);
    return table;
  }

  lb_roles roles() {
    const uint32_t count = reader_.byte() % 5;
    auto& items = roles_.emplace_back();
    for (uint32_t i = 0; i < count; ++i) {
      const char* name = text();
      const char* doc = text();
      const char* capabilities = text();
      items.push_back({name, doc, capabilities, reader_.number(), reader_.number()});
    }
    return {sizeof(lb_role), count, items.data()};
  }

 private:
  lb_option option(int depth) {
    lb_option option = {};
    option.name = text();
    option.type = static_cast<lb_type>(reader_.number());
    option.flags = reader_.number();
    option.doc = text();
    option.fallback = text();
    option.range = text();
    option.choices = list();
    option.fields = options(depth + 1);
    option.alias = text();
    return option;
  }

  // Headers that cannot be true, without making the checks read what is not there.
  void damage(lb_options& table) {
    switch (reader_.byte()) {
      case 1:
        table.stride = reader_.byte() % sizeof(lb_option);
        break;
      case 2:
        table.items = nullptr;
        break;
      case 3:
        table.count = 0xffffffff;
        break;
      default:
        break;
    }
  }

  Reader& reader_;
  std::deque<std::string> texts_;
  std::deque<std::vector<const char*>> lists_;
  std::deque<std::vector<lb_option>> options_;
  std::deque<std::vector<lb_role>> roles_;
};

lb_status* create(lb_state*, const lb_config*, void**) { return nullptr; }
void destroy(void*) {}
lb_status* loss(void*, const lb_step*, lb_tensor**) { return nullptr; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Reader reader(data, size);
  Tables tables(reader);

  lb_method_vtable vtable = {};
  vtable.struct_size = sizeof(vtable);
  vtable.create = create;
  vtable.destroy = destroy;
  vtable.loss = loss;
  lb_component component = {};
  component.struct_size = sizeof(component);
  component.kind = "limbeck.method/1";
  component.name = tables.text();
  component.doc = tables.text();
  component.options = tables.options(0);
  component.provides = tables.list();
  vtable.roles = tables.roles();
  vtable.reads = tables.list();
  component.vtable = &vtable;
  limbeck::check_component(component);
  return 0;
}
