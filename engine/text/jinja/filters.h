// The filters of jinja2, and `tojson` as Hugging Face has it.
//
// Not supported: filesizeformat, pprint, random, striptags, urlize, wordcount, wordwrap, xmlattr. `safe` does nothing
// and `escape` gives a plain string: nothing is escaped on its own in chat templates. What is a generator in Python is
// computed at once here, and is one in what can be done with it.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

using Filter = Value (*)(Environment& env, const Value& value, const Arguments& arguments);

// Null: there is none.
Filter FindFilter(std::string_view name);
// Throws Error if there is none.
Value CallFilter(Environment& env, std::string_view name, const Value& value, const Arguments& arguments);

// Those of a kind; null for other names.
Filter FindTextFilter(std::string_view name);
Filter FindListFilter(std::string_view name);
Filter FindSelectFilter(std::string_view name);
Filter FindNumberFilter(std::string_view name);

// What "a.b" or 0 as the attribute of a filter finds in an item.
Value GetByPath(Environment& env, const Value& item, const Value& path);
// Lower case, if it is text and case does not matter.
Value SortKey(Environment& env, const Value& item, const Value* attribute, bool case_sensitive);

}  // namespace sluice::engine::jinja
