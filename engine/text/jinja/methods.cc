#include "engine/text/jinja/methods.h"

#include "absl/container/flat_hash_set.h"
#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"

namespace sluice::engine::jinja {
namespace {

using Names = absl::flat_hash_set<std::string>;

const Names& TextMethods() {
  static const auto* const kNames =
      new Names{"capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
                "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
                "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
                "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
                "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
                "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
                "swapcase",   "title",        "translate",    "upper",   "zfill"};
  return *kNames;
}

const Names& DictMethods() {
  static const auto* const kNames = new Names{"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                              "pop",   "popitem", "setdefault", "update", "values"};
  return *kNames;
}

const Names& ListMethods() {
  static const auto* const kNames =
      new Names{"append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"};
  return *kNames;
}

Value CallLoopMethod(Environment& env, Loop& loop, const std::string& name, const Arguments& arguments) {
  if (name == "cycle") {
    if (arguments.positional.empty()) Fail("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  bool same = loop.changed_called && loop.last_changed.size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = Equal(loop.last_changed[i], arguments.positional[i], &env.budget());
  }
  loop.changed_called = true;
  loop.last_changed = arguments.positional;
  return Value(!same);
}

Value CallCyclerMethod(Cycler& cycler, const std::string& name) {
  if (name == "reset") {
    cycler.at = 0;
    return Value(None{});
  }
  const Value item = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return item;
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) {
  if (value.Is(Kind::kText)) return TextMethods().contains(ForAbseil(name));
  if (value.Is(Kind::kDict)) return DictMethods().contains(ForAbseil(name));
  if (!value.Is(Kind::kList)) return false;
  if (value.list().kind == ListKind::kList) return ListMethods().contains(ForAbseil(name));
  return value.list().kind <= ListKind::kRange && (name == "count" || name == "index");
}

Value CallMethod(Environment& env, const Value& receiver, const std::string& name, const Arguments& arguments) {
  env.budget().Step();
  switch (receiver.kind()) {
    case Kind::kText:
      env.budget().StepBytes(receiver.text().size());
      return CallTextMethod(env, receiver.text(), name, arguments);
    case Kind::kDict:
      return CallDictMethod(env, receiver.dict(), name, arguments);
    case Kind::kList:
      return CallListMethod(env, receiver.list(), name, arguments);
    case Kind::kObject:
      if (Loop* loop = receiver.object()->As<Loop>()) return CallLoopMethod(env, *loop, name, arguments);
      if (Cycler* cycler = receiver.object()->As<Cycler>()) return CallCyclerMethod(*cycler, name);
      break;
    default:
      break;
  }
  Fail(Concat("'", TypeName(receiver), "' object has no method '", name, "'"));
}

Value CallDictMethod(Environment& env, const DictData& dict, const std::string& name, const Arguments& arguments) {
  if (name == "get") {
    const auto given = Bind(arguments, "get", {"key", "default"}, 1);
    if (const Value* found = dict.Find(*given[0])) return *found;
    return given[1] != nullptr ? *given[1] : Value(None{});
  }
  if (name == "copy") {
    DictBuilder copy;
    for (const auto& [key, value] : dict.entries) copy.Set(key, value);
    return env.heap().NewDict(std::move(copy));
  }
  if (name != "items" && name != "keys" && name != "values") {
    Fail(Concat("access to attribute '", name, "' of 'dict' object is unsafe."));
  }
  Bind(arguments, name, {});
  env.budget().StepBytes(dict.entries.size() * sizeof(DictData::Entry));
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    items.push_back(name == "keys"     ? key
                    : name == "values" ? value
                                       : env.heap().NewList({key, value}, ListKind::kTuple));
  }
  return env.heap().NewList(std::move(items), name == "keys"     ? ListKind::kKeys
                                              : name == "values" ? ListKind::kValues
                                                                 : ListKind::kItems);
}

Value CallListMethod(Environment& env, const ListData& list, const std::string& name, const Arguments& arguments) {
  if (name == "copy") return env.heap().NewList(list.items);
  if (name != "count" && name != "index") {
    Fail(Concat("access to attribute '", name, "' of 'list' object is unsafe."));
  }
  const auto given = Bind(arguments, name, {"value"}, 1);
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!Equal(list.items[i], *given[0], &env.budget())) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") Fail("the value is not in the list");
  return Value(count);
}

}  // namespace sluice::engine::jinja
