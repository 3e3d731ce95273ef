// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/pickle.hpp"

#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

using Kind = PickleNode::Kind;

uint64_t little(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = (value << 8) | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

std::string little(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i, value >>= 8) {
    bytes += static_cast<char>(value & 0xff);
  }
  return bytes;
}

}  // namespace

// ---- reading

// The pickle machine: a stack of nodes, marks on it, and a memo.
class PickleGraph::Machine {
 public:
  Machine(PickleGraph& graph, std::string_view bytes) : graph_(graph), bytes_(bytes) {}

  void run() {
    // Cheap to tell apart, and the message of what else begins so would be about opcodes.
    if (bytes_.size() < 2 || bytes_[0] != '\x80') {
      refuse("does not begin as a pickle of protocol 2 or later");
    }
    while (step()) {
    }
    if (at_ != bytes_.size()) {
      refuse("bytes follow the end of the pickle");
    }
    graph_.root_ = pop();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData,
                cat(graph_.where_, ": the pickle is damaged at byte ", start_, ": ", what));
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      refuse(cat("it ends within ", count, " bytes that should be here"));
    }
    const auto part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  std::string_view take_counted(int length_bytes) {
    return take(little(take(static_cast<uint64_t>(length_bytes))));
  }
  std::string_view take_line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) {
      refuse("a name has no end");
    }
    const auto line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  PickleNode& node(uint32_t index) { return graph_.nodes_[index]; }

  uint32_t add(PickleNode node) {
    graph_.nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(graph_.nodes_.size() - 1);
  }
  void push(PickleNode node) { stack_.push_back(add(std::move(node))); }
  void push(Kind kind) {
    PickleNode made;
    made.kind = kind;
    push(std::move(made));
  }
  void push_number(Kind kind, int64_t number) {
    PickleNode made;
    made.kind = kind;
    made.number = number;
    push(std::move(made));
  }
  void push_text(Kind kind, std::string_view text) {
    PickleNode made;
    made.kind = kind;
    made.text = text;
    push(std::move(made));
  }
  void push_long(std::string_view digits) {
    if (digits.size() > 8) {
      push_text(Kind::kOther, "an integer of more than 64 bits");
      return;
    }
    uint64_t value = little(digits);
    // Two's complement of any length.
    if (!digits.empty() && digits.size() < 8 && (digits.back() & 0x80) != 0) {
      value |= ~uint64_t{0} << (8 * digits.size());
    }
    push_number(Kind::kInt, static_cast<int64_t>(value));
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t pop() {
    if (stack_.size() <= floor()) {
      refuse("takes from an empty stack");
    }
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  PickleNode& top() {
    if (stack_.size() <= floor()) {
      refuse("takes from an empty stack");
    }
    return node(stack_.back());
  }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) {
      refuse("there is no mark on the stack");
    }
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<uint32_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  void tuple(size_t count) {
    PickleNode made;
    made.kind = Kind::kTuple;
    made.items.resize(count);
    for (size_t i = count; i-- > 0;) {
      made.items[i] = pop();
    }
    push(std::move(made));
  }
  void append(const std::vector<uint32_t>& items) {
    PickleNode& list = top();
    if (list.kind == Kind::kList) {
      list.items.insert(list.items.end(), items.begin(), items.end());
    } else if (list.kind != Kind::kObject) {
      refuse("appends to what is no list");
    }
  }
  void set_items(const std::vector<uint32_t>& items) {
    if (items.size() % 2 != 0) {
      refuse("a key has no value");
    }
    PickleNode& dict = top();
    if (dict.kind == Kind::kDict) {
      dict.items.insert(dict.items.end(), items.begin(), items.end());
    } else if (dict.kind != Kind::kObject) {
      refuse("sets an item of what is no dict");
    }
  }

  // What would be constructed, but for a few that are plain values.
  void construct(bool is_call) {
    const uint32_t arguments = pop();
    const uint32_t callee = pop();
    const PickleNode& function = node(callee);
    const PickleNode& given = node(arguments);
    PickleNode made;
    if (is_call && given.kind == Kind::kTuple) {
      if (function.is_global("collections", "OrderedDict") && given.items.empty()) {
        push(Kind::kDict);
        return;
      }
      if (function.is_global("torch", "Size") && given.items.size() == 1 &&
          node(given.items[0]).kind == Kind::kTuple) {
        stack_.push_back(given.items[0]);
        return;
      }
      if (function.is_global("_codecs", "encode") && given.items.size() == 2 &&
          node(given.items[0]).kind == Kind::kText && node(given.items[1]).text == "latin1") {
        push_text(Kind::kLatin1, node(given.items[0]).text);
        return;
      }
      if ((function.is_global("__builtin__", "bytes") || function.is_global("builtins", "bytes")) &&
          given.items.empty()) {
        push(Kind::kBytes);
        return;
      }
    }
    made.kind = Kind::kObject;
    made.items = {callee, arguments};
    push(std::move(made));
  }

  void build() {
    const uint32_t state = pop();
    PickleNode& object = top();
    if (object.kind == Kind::kObject) {
      object.items.resize(2);
      object.items.push_back(state);
    } else if (object.kind != Kind::kDict && object.kind != Kind::kOther) {
      refuse("gives a state to what is no object");
    }
  }

  void put(uint64_t key) {
    // Python numbers them one by one.
    if (key >= bytes_.size()) {
      refuse(cat("remembers something as number ", key));
    }
    if (key >= memo_.size()) {
      memo_.resize(key + 1, kNothing);
    }
    top();
    memo_[key] = stack_.back();
  }
  void get(uint64_t key) {
    if (key >= memo_.size() || memo_[key] == kNothing) {
      refuse(cat("refers to number ", key, ", which is not there"));
    }
    stack_.push_back(memo_[key]);
  }

  // False at the end of the pickle.
  bool step() {  // NOLINT(readability-function-size): a case for every opcode
    start_ = at_;
    const auto code = static_cast<uint8_t>(take(1)[0]);
    switch (code) {
      case 0x80: {  // PROTO
        const uint64_t protocol = little(take(1));
        if (protocol < 2 || protocol > 5) {
          refuse(cat("protocol ", protocol, ", known are 2 to 5"));
        }
        return true;
      }
      case 0x95:  // FRAME
        take(8);
        return true;
      case '.':  // STOP
        return false;
      case '(':  // MARK
        marks_.push_back(stack_.size());
        return true;

      case 'N':  // NONE
        push(Kind::kNone);
        return true;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        push_number(Kind::kBool, code == 0x88 ? 1 : 0);
        return true;
      case 'K':  // BININT1
        push_number(Kind::kInt, static_cast<int64_t>(little(take(1))));
        return true;
      case 'M':  // BININT2
        push_number(Kind::kInt, static_cast<int64_t>(little(take(2))));
        return true;
      case 'J':  // BININT
        push_number(Kind::kInt, static_cast<int32_t>(little(take(4))));
        return true;
      case 0x8a:  // LONG1
        push_long(take_counted(1));
        return true;
      case 0x8b:  // LONG4
        push_long(take_counted(4));
        return true;
      case 'G': {  // BINFLOAT
        uint64_t bits = 0;
        for (const char byte : take(8)) {
          bits = (bits << 8) | static_cast<uint8_t>(byte);
        }
        PickleNode made;
        made.kind = Kind::kFloat;
        made.real = std::bit_cast<double>(bits);
        push(std::move(made));
        return true;
      }
      case 0x8c:  // SHORT_BINUNICODE
        push_text(Kind::kText, take_counted(1));
        return true;
      case 'X':  // BINUNICODE
        push_text(Kind::kText, take_counted(4));
        return true;
      case 0x8d:  // BINUNICODE8
        push_text(Kind::kText, take_counted(8));
        return true;
      case 'C':  // SHORT_BINBYTES
        push_text(Kind::kBytes, take_counted(1));
        return true;
      case 'B':  // BINBYTES
        push_text(Kind::kBytes, take_counted(4));
        return true;
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        push_text(Kind::kBytes, take_counted(8));
        return true;

      case ')':  // EMPTY_TUPLE
        push(Kind::kTuple);
        return true;
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        tuple(code - 0x84U);
        return true;
      case 't': {  // TUPLE
        PickleNode made;
        made.kind = Kind::kTuple;
        made.items = pop_to_mark();
        push(std::move(made));
        return true;
      }
      case ']':  // EMPTY_LIST
        push(Kind::kList);
        return true;
      case 'a': {  // APPEND
        const uint32_t item = pop();
        append({item});
        return true;
      }
      case 'e':  // APPENDS
        append(pop_to_mark());
        return true;
      case '}':  // EMPTY_DICT
        push(Kind::kDict);
        return true;
      case 's': {  // SETITEM
        const uint32_t value = pop();
        const uint32_t key = pop();
        set_items({key, value});
        return true;
      }
      case 'u':  // SETITEMS
        set_items(pop_to_mark());
        return true;
      case 0x8f:  // EMPTY_SET
        push_text(Kind::kOther, "set");
        return true;
      case 0x90:  // ADDITEMS
        pop_to_mark();
        top();
        return true;
      case 0x91:  // FROZENSET
        pop_to_mark();
        push_text(Kind::kOther, "frozenset");
        return true;

      case 'c': {  // GLOBAL
        PickleNode made;
        made.kind = Kind::kGlobal;
        made.text = take_line();
        made.name = take_line();
        push(std::move(made));
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleNode& name = node(pop());
        const PickleNode& module = node(pop());
        if (name.kind != Kind::kText || module.kind != Kind::kText) {
          refuse("a class has no name");
        }
        PickleNode made;
        made.kind = Kind::kGlobal;
        made.text = module.text;
        made.name = name.text;
        push(std::move(made));
        return true;
      }
      case 'R':  // REDUCE
        construct(true);
        return true;
      case 0x81:  // NEWOBJ
        construct(false);
        return true;
      case 0x92:  // NEWOBJ_EX
        pop();    // keyword arguments
        construct(false);
        return true;
      case 'b':  // BUILD
        build();
        return true;
      case 'Q': {  // BINPERSID
        PickleNode made;
        made.kind = Kind::kPersistent;
        made.items = {pop()};
        push(std::move(made));
        return true;
      }

      case 0x94:  // MEMOIZE
        put(memo_.size());
        return true;
      case 'q':  // BINPUT
        put(little(take(1)));
        return true;
      case 'r':  // LONG_BINPUT
        put(little(take(4)));
        return true;
      case 'h':  // BINGET
        get(little(take(1)));
        return true;
      case 'j':  // LONG_BINGET
        get(little(take(4)));
        return true;

      default:
        refuse(cat("the opcode ", static_cast<int>(code), " is not known"));
    }
  }

  static constexpr uint32_t kNothing = std::numeric_limits<uint32_t>::max();

  PickleGraph& graph_;
  std::string_view bytes_;
  size_t at_ = 0;
  size_t start_ = 0;  // of the opcode
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::vector<uint32_t> memo_;
};

PickleGraph::PickleGraph(std::string_view bytes, const std::string& where)
    : where_(where), copied_limit_(16 * bytes.size() + (1U << 20)) {
  if (bytes.size() >= std::numeric_limits<uint32_t>::max()) {
    throw Error(Fault::kData, cat(where, ": a pickle of ", bytes.size(), " bytes is too large"));
  }
  Machine(*this, bytes).run();
}

std::string PickleGraph::class_of(const PickleNode& node) const {
  const PickleNode* named = node.kind == Kind::kObject ? &nodes_[node.items[0]] : &node;
  return named->kind == Kind::kGlobal ? cat(named->text, ".", named->name) : "";
}

namespace {

std::string bytes_of_latin1(std::string_view utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<uint8_t>(utf8[i]);
    // 0xc2 and 0xc3 lead the characters 0x80 to 0xff.
    if ((byte & 0xfe) == 0xc2 && i + 1 < utf8.size()) {
      bytes += static_cast<char>((byte << 6) | (static_cast<uint8_t>(utf8[++i]) & 0x3f));
    } else {
      bytes += static_cast<char>(byte);
    }
  }
  return bytes;
}

class ValueMaker {
 public:
  ValueMaker(const PickleGraph& graph, const std::string& where, uint64_t limit)
      : graph_(graph), where_(where), left_(limit) {}

  DcpValue make(const PickleNode& node, int depth = 0) {
    if (depth > kMaxValueDepth) {
      throw Error(Fault::kData,
                  cat(where_, ": a value is nested in more than ", kMaxValueDepth, " others"));
    }
    charge(sizeof(DcpValue) + (node.kind == Kind::kGlobal ? 0 : node.text.size()));
    switch (node.kind) {
      case Kind::kNone:
        return {DcpValue::None{}};
      case Kind::kBool:
        return {node.number != 0};
      case Kind::kInt:
        return {node.number};
      case Kind::kFloat:
        return {node.real};
      case Kind::kText:
        return {std::string(node.text)};
      case Kind::kBytes:
        return {DcpValue::Bytes{std::string(node.text)}};
      case Kind::kLatin1:
        return {DcpValue::Bytes{bytes_of_latin1(node.text)}};
      case Kind::kTuple:
      case Kind::kList: {
        DcpValue::List list;
        for (const uint32_t item : node.items) {
          list.push_back(make(graph_.at(item), depth + 1));
        }
        return {std::move(list)};
      }
      case Kind::kDict: {
        DcpValue::Dict dict;
        for (size_t i = 0; i < node.items.size(); i += 2) {
          DcpValue key = make(graph_.at(node.items[i]), depth + 1);
          dict.push_back({std::move(key), make(graph_.at(node.items[i + 1]), depth + 1)});
        }
        return {std::move(dict)};
      }
      case Kind::kGlobal:
      case Kind::kObject:
        return {DcpValue::Opaque{named(node)}};
      case Kind::kPersistent:
        return {DcpValue::Opaque{"a tensor's storage"}};
      case Kind::kOther:
        return {DcpValue::Opaque{std::string(node.text)}};
    }
    return {DcpValue::None{}};
  }

 private:
  void charge(uint64_t bytes) {
    if (bytes > left_) {
      throw Error(Fault::kData,
                  cat(where_,
                      ": its values are shared so often that a copy would be many times "
                      "larger than the pickle"));
    }
    left_ -= bytes;
  }

  std::string named(const PickleNode& node) {
    std::string name = graph_.class_of(node);
    charge(name.size());
    return name.empty() ? "an object" : name;
  }

  const PickleGraph& graph_;
  const std::string& where_;
  uint64_t left_;
};

}  // namespace

DcpValue PickleGraph::value_of(const PickleNode& node) const {
  return ValueMaker(*this, where_, copied_limit_).make(node);
}

// ---- writing

PickleWriter::PickleWriter() : out_("\x80\x02") {}

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value <= 0xff) {
    out_ += 'K' + little(static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xffff) {
    out_ += 'M' + little(static_cast<uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    out_ += 'J' + little(static_cast<uint64_t>(value), 4);
  } else {
    out_ += "\x8a\x08" + little(static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::real(double value) {
  const std::string bytes = little(std::bit_cast<uint64_t>(value), 8);
  code('G');
  out_.append(bytes.rbegin(), bytes.rend());
}

void PickleWriter::text(std::string_view utf8) {
  if (!is_utf8(utf8) || utf8.size() > std::numeric_limits<uint32_t>::max()) {
    throw Error(Fault::kInternal, "a text to be pickled is not UTF-8, or too long");
  }
  out_ += 'X' + little(utf8.size(), 4);
  out_ += utf8;
}

void PickleWriter::bytes(std::string_view data) {
  // Protocol 2 has no bytes: Python writes them so.
  global("_codecs", "encode");
  mark();
  std::string utf8;
  for (const char byte : data) {
    const auto value = static_cast<uint8_t>(byte);
    if (value < 0x80) {
      utf8 += byte;
    } else {
      utf8 += static_cast<char>(0xc0 | (value >> 6));
      utf8 += static_cast<char>(0x80 | (value & 0x3f));
    }
  }
  text(utf8);
  text("latin1");
  tuple();
  reduce();
}

bool PickleWriter::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) {
    return false;
  }
  const bool is_small = found->second <= 0xff;
  out_ += (is_small ? 'h' : 'j') + little(found->second, is_small ? 1 : 4);
  return true;
}

void PickleWriter::remember(std::string key) {
  const auto number = static_cast<uint32_t>(memo_.size());
  const bool is_small = number <= 0xff;
  out_ += (is_small ? 'q' : 'r') + little(number, is_small ? 1 : 4);
  memo_.emplace(std::move(key), number);
}

void PickleWriter::global(const char* module, const char* name) {
  const std::string opcode = cat('c', module, '\n', name, '\n');
  if (!recall(opcode)) {
    out_ += opcode;
    remember(opcode);
  }
}

void PickleWriter::shared_text(std::string_view utf8) {
  std::string key = cat('X', utf8);
  if (!recall(key)) {
    text(utf8);
    remember(std::move(key));
  }
}

void PickleWriter::integers(const std::vector<int64_t>& values) {
  mark();
  for (const int64_t item : values) {
    integer(item);
  }
  tuple();
}

void PickleWriter::value(const DcpValue& value, int depth) {
  if (depth > kMaxValueDepth) {
    throw Error(Fault::kInternal,
                cat("a value to be pickled is nested in more than ", kMaxValueDepth, " others"));
  }
  std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, DcpValue::None>) {
          none();
        } else if constexpr (std::is_same_v<Held, bool>) {
          boolean(held);
        } else if constexpr (std::is_same_v<Held, int64_t>) {
          integer(held);
        } else if constexpr (std::is_same_v<Held, double>) {
          real(held);
        } else if constexpr (std::is_same_v<Held, std::string>) {
          text(held);
        } else if constexpr (std::is_same_v<Held, DcpValue::Bytes>) {
          bytes(held.data);
        } else if constexpr (std::is_same_v<Held, DcpValue::List>) {
          empty_list();
          mark();
          for (const DcpValue& item : held) {
            this->value(item, depth + 1);
          }
          append_all();
        } else if constexpr (std::is_same_v<Held, DcpValue::Dict>) {
          empty_dict();
          mark();
          for (const auto& [key, item] : held) {
            this->value(key, depth + 1);
            this->value(item, depth + 1);
          }
          set_all();
        } else {
          throw Error(Fault::kInternal, cat("a value to be pickled is a ", held.what));
        }
      },
      value.value);
}

std::string PickleWriter::finish() {
  code('.');
  return std::move(out_);
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    if (lead < 0x80) {
      continue;
    }
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4) {
      return false;
    }
    uint32_t point = lead & (0x3fU >> more);
    for (int k = 0; k < more; ++k) {
      if (i == text.size() || (static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) {
        return false;
      }
      point = (point << 6) | (static_cast<uint8_t>(text[i++]) & 0x3f);
    }
    const bool is_long = (more == 2 && point < 0x800) || (more == 3 && point < 0x10000);
    if (is_long || (point >= 0xd800 && point < 0xe000) || point > 0x10ffff) {
      return false;
    }
  }
  return true;
}

}  // namespace limbeck
