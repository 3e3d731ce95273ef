// SPDX-License-Identifier: Apache-2.0
// Python pickles of protocols 2 to 5 as a graph of plain nodes, and the other way round. Nothing is
// imported or called: what a pickle asks to construct is only named.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"
#include "core/dcp/value.hpp"

namespace limbeck {

struct PickleNode {
  enum class Kind : uint8_t {
    kNone,
    kBool,        // number
    kInt,         // number
    kFloat,       // real
    kText,        // text: UTF-8
    kBytes,       // text
    kLatin1,      // text: bytes, each of them as a character in UTF-8
    kTuple,       // items
    kList,        // items
    kDict,        // items: key, value, key, value ...
    kGlobal,      // text: module; name
    kObject,      // items: class or function, arguments, and what BUILD gave to it
    kPersistent,  // items: the argument of persistent_load
    kOther,       // text: what it is
  };

  Kind kind = Kind::kNone;
  int64_t number = 0;
  double real = 0;
  std::string_view text;  // into the bytes of the pickle
  std::string_view name;
  std::vector<uint32_t> items;

  bool is_global(std::string_view module, std::string_view global_name) const {
    return kind == Kind::kGlobal && text == module && name == global_name;
  }
};

// Takes memory and time in proportion to the bytes. Nodes may be shared, and may contain
// themselves.
class LIMBECK_API PickleGraph {
 public:
  // `bytes` must outlive the graph. `where` names the pickle in messages. Throws Error(kData).
  PickleGraph(std::string_view bytes, const std::string& where);

  const PickleNode& root() const { return nodes_[root_]; }
  const PickleNode& at(uint32_t node) const { return nodes_[node]; }
  // The class of an object, "" for other nodes: "torch.Size".
  std::string class_of(const PickleNode& node) const;
  // The plain value of a node. Throws Error(kData) if it is nested deeper than kMaxValueDepth, or
  // shared so often that the copy would be much larger than the pickle.
  DcpValue value_of(const PickleNode& node) const;

 private:
  class Machine;

  std::string where_;
  uint64_t copied_limit_ = 0;
  std::vector<PickleNode> nodes_;
  uint32_t root_ = 0;
};

inline constexpr int kMaxValueDepth = 100;

// The opcodes of a pickle of protocol 2, one after the other.
class LIMBECK_API PickleWriter {
 public:
  PickleWriter();

  void none() { code('N'); }
  void boolean(bool value) { code(value ? '\x88' : '\x89'); }
  void integer(int64_t value);
  void real(double value);
  void text(std::string_view utf8);
  // The same for texts that come again and again: their bytes are written once.
  void shared_text(std::string_view utf8);
  void bytes(std::string_view data);
  void global(const char* module, const char* name);  // its bytes are written once
  void empty_dict() { code('}'); }
  void empty_list() { code(']'); }
  void empty_tuple() { code(')'); }
  void mark() { code('('); }
  void tuple() { code('t'); }       // of what follows the mark
  void append_all() { code('e'); }  // to the list below the mark
  void set_all() { code('u'); }     // in the dict below the mark
  void new_object() { code('\x81'); }
  void reduce() { code('R'); }
  void build() { code('b'); }
  void persistent() { code('Q'); }
  void integers(const std::vector<int64_t>& values);  // a tuple
  // Throws Error(kInternal) for an Opaque value, text that is not UTF-8, and more than
  // kMaxValueDepth levels.
  void value(const DcpValue& value, int depth = 0);

  // The finished pickle.
  std::string finish();

 private:
  void code(char byte) { out_ += byte; }
  // Refers to what was remembered as `key`, if something was.
  bool recall(const std::string& key);
  // Remembers what is on the stack.
  void remember(std::string key);

  std::string out_;
  std::map<std::string, uint32_t> memo_;
};

LIMBECK_API bool is_utf8(std::string_view text);

}  // namespace limbeck
