// What each construct writes. The values are those of jinja2 3.1 (tests/e2e_chat_templates_test.py holds random
// templates against it).
#include "engine/text/jinja/template.h"

#include <string>
#include <vector>

#include "engine/text/jinja/from_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine::jinja {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kVariables = R"json({
  "s": " Hé \n", "l": [3, 1, 2], "n": null, "i": 5, "f": 2.0, "t": true,
  "d": {"b": 1, "a": {"x": [1, "y"]}, "items": 7},
  "o": [{"r": "user", "k": 2}, {"r": "tool", "k": 1}]})json";

absl::StatusOr<Text> Run(std::string_view source, const Limits& limits = {}) {
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 1;
  now.tm_mday = 3;
  return parsed->Render(limits, now, [](Environment& env, Template::SetVariable set) {
    const absl::StatusOr<Value> variables = FromJson(env, kVariables);
    for (const auto& [name, value] : variables->dict().entries) set(name.bytes(), value);
    return absl::OkStatus();
  });
}

std::string Render(std::string_view source, const Limits& limits = {}) {
  const absl::StatusOr<Text> text = Run(source, limits);
  return text.ok() ? text->bytes() : "error: " + std::string(text.status().message());
}

struct Case {
  std::string source, text;
};
void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(Render(c.source), c.text) << c.source;
}

TEST(JinjaTemplate, WhiteSpaceAroundTags) {
  Check({
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"a\r\nb\rc", "a\nb\nc"},
      {"{% if t %}\na\n{% endif %}\nb", "a\nb"},
      {"x\n  {% if t %}\n  a\n  {% endif %}\nb", "x\n  a\nb"},
      {"x {% if t %}a{% endif %}", "x a"},
      {"x\n  {%+ if t %}a{% endif +%}\nb", "x\n  a\nb"},
      {"x \n {{- 1 -}} \n y", "x1y"},
      {"  {{ 1 }}\n  y", "  1\n  y"},
      {"x\n  {# c #}\ny", "x\ny"},
      {"x {#- c -#} y", "xy"},
      {"{% raw %}{{ x }}{% y %}{% endraw %}\nz", "{{ x }}{% y %}z"},
      {"a {%- raw -%} b {%- endraw -%} c", "abc"},
      {"{{ {'a': {'b': 1}}['a']['b'] }}", "1"},
      {"{ {{ '}}' }} }", "{ }} }"},
  });
}

TEST(JinjaTemplate, LiteralsAndTheirText) {
  Check({
      {"{{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }}", "1000 31 3 15"},
      {"{{ 1.0 }} {{ 1e3 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 }} {{ 123456789.25 }}",
       "1.0 1000.0 1e+16 1e-05 0.1 123456789.25"},
      {"{{ true }} {{ none }} {{ None }} {{ False }}", "True None None False"},
      {R"({{ 'a\n\'b' "c" }}|{{ '\x41\u00e9\q' }})", "a\n'bc|Aé\\q"},
      {R"({{ ['a', "it's", '"', '\n', 'é', '\x00'] }})", R"(['a', "it's", '"', '\n', 'é', '\x00'])"},
      {"{{ (1,) }} {{ () }} {{ (1, 'a') }} {{ {'k': [none], 1: 2} }}", "(1,) () (1, 'a') {'k': [None], 1: 2}"},
      {"{{ d }}", "{'b': 1, 'a': {'x': [1, 'y']}, 'items': 7}"},
      {"{{ d.items() }} {{ d.keys() }}",
       "dict_items([('b', 1), ('a', {'x': [1, 'y']}), ('items', 7)]) dict_keys(['b', 'a', 'items'])"},
  });
}

TEST(JinjaTemplate, Operators) {
  Check({
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 7.5 % 2 }}", "3 -4 2 3.5 1024 1.5"},
      {"{{ 'a' ~ 1 ~ none ~ 2.0 }}", "a1None2.0"},
      {"{{ 'ab' * 2 + 'c' }} {{ [1] + [2] }} {{ '%s-%05.1f%%' % ('x', 2) }}", "ababc [1, 2] x-002.0%"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ true == 1 }}",
       "True False True True True True"},
      {"{{ 'b' in d }} {{ 2 in l }} {{ 'x' not in 'axb' }} {{ 'z' in missing }}", "True True False False"},
      {"{{ 1 and 0 or 'x' }} {{ not 1 }} {{ n or missing or 3 }}", "x False 3"},
      {"{{ 'y' if t else 'z' }}{{ 'y' if n }}{{ 1 if n else 2 if n else 3 }}", "y3"},
      {"{{ -i }} {{ +f }} {{ -i | abs }}", "-5 2.0 5"},
      {"{{ 1 - 1 | string + 'a' }}",
       "error: line 1 of the chat template: unsupported operand type(s) for -: 'int' and 'str'"},
  });
}

TEST(JinjaTemplate, AttributesItemsAndSlices) {
  Check({
      {"{{ d.b }} {{ d['a'].x[1] }} {{ l[-1] }} {{ l.0 }} {{ s[1] }}", "1 y 2 3 H"},
      {"{{ d.nothing }}|{{ d['x'] }}|{{ l[9] }}|{{ n.x }}", "|||"},
      {"{{ d['items'] }} {{ d.items is callable }}", "7 True"},
      {"{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ 'héllo'[1:3] }} {{ 'héllo'[::-2] }} {{ l[5:] }}",
       "[1, 2] [3, 1] [2, 1, 3] él olh []"},
      {"{{ d.a.y.z }}", "error: line 1 of the chat template: 'dict object' has no attribute 'y'"},
      {"\n{{ nobody.x }}", "error: line 2 of the chat template: 'nobody' is undefined"},
      {"{{ s.__class__ }}", ""},
      {"{{ s.__class__.__mro__ }}",
       "error: line 1 of the chat template: access to attribute '__class__' of 'str' object is unsafe."},
      {"{{ l.append(1) }}",
       "error: line 1 of the chat template: access to attribute 'append' of 'list' object is unsafe."},
  });
}

TEST(JinjaTemplate, Statements) {
  Check({
      {"{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "13,22"},
      {"{% for k, v in d.a.items() %}{{ k }}{{ v }}{% else %}no{% endfor %}{% for x in [] %}{% else %}no{% endfor %}",
       "x[1, 'y']no"},
      {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x > 2 %}{% break %}{% endif %}{{ x }}{% "
       "endfor %}",
       "02"},
      {"{% for x in [[1, [2, [3]]]] recursive %}{{ loop.depth }}{% if x is iterable %}{{ loop(x) }}{% endif %}{% "
       "endfor %}",
       "122334"},
      {"{% for x in 'ab' %}{{ loop.cycle(1, 2) }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(x) }}{% endfor "
       "%}",
       "1bTrue2aTrue"},
      {"{% if n %}a{% elif t %}b{% else %}c{% endif %}", "b"},
      {"{% set x = 1 %}{% for y in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if t %}{% set x = 3 %}{% endif "
       "%}{{ x }}",
       "213"},
      {"{% set ns = namespace(x=1) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}", "7"},
      {"{% set a, b = 1, 2 %}{{ b }}{% set c | upper %}x{{ a }}{% endset %}{{ c }}", "2X1"},
      {"{% macro m(a, b='d') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, z=4) }}{{ "
       "m(b=5) }}",
       "1d(){}12(3,){'z': 4}5(){}"},
      {"{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(v) m() %}{{ v }}y{% endcall %}", "<xy>"},
      {"{% filter upper %}a{{ 'b' }}{% endfilter %}{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x }}", "AB3"},
      {"{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}", "a"},
      {"{% set j = joiner(';') %}{{ j() }}a{{ j() }}b{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ "
       "c.current }}",
       "a;b121"},
      {"{{ strftime_now('%d %b %Y') }}", "03 Feb 2024"},
      {"{{ raise_exception('no ' ~ i) }}", "error: no 5"},
  });
}

TEST(JinjaTemplate, Filters) {
  Check({
      {"{{ s | trim }}|{{ 'ab cd' | title }}|{{ 'ABC' | capitalize }}|{{ 'ß' | upper }}", "Hé|Ab Cd|Abc|SS"},
      {"{{ l | sort }} {{ l | sort(reverse=true) | first }} {{ l | last }} {{ l | length }} {{ l | sum }} {{ l | max "
       "}}",
       "[1, 2, 3] 3 2 3 6 3"},
      {"{{ o | map(attribute='r') | join(', ') }} {{ o | selectattr('k', 'gt', 1) | list | length }}", "user, tool 1"},
      {"{{ l | select('odd') | list }} {{ l | reject('eq', 1) | list }} {{ ['b', 'A'] | sort }}",
       "[3, 1] [3, 2] ['A', 'b']"},
      {"{% if [] | select %}a generator is true{% endif %}", "a generator is true"},
      {"{{ '<a &' | escape }}", "&lt;a &amp;"},
      {"{{ missing | default('x') }}{{ n | default('x') }}{{ n | d('x', true) }}", "xNonex"},
      {"{{ d | tojson }} {{ 'é<\"\\n\\x01' | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }}",
       R"({"b": 1, "a": {"x": [1, "y"]}, "items": 7} "é<\"\n\u0001" "\u00e9\ud83d\ude00")"},
      {"{{ {'a': [1, {}], 'b': 1.0} | tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": 1.0\n}"},
      {"{{ [1, 2] | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
       R"([1,2] {"a": 2, "b": 1})"},
      {"{{ 'a\\nb' | indent(2) }}|{{ '12' | int + 1 }}|{{ 'x' | int }}|{{ '1.5' | float }}|{{ 2.5 | round }}",
       "a\n  b|13|0|1.5|2.0"},
      {"{{ d | items | list | length }} {{ {'b': 1, 'A': 2} | dictsort }} {{ 'aab' | unique | join }}",
       "3 [('A', 2), ('b', 1)] ab"},
      {"{{ 'a-b' | replace('-', '+') }} {{ [1, 2, 3] | batch(2) | list }} {{ 'abc' | reverse }}",
       "a+b [[1, 2], [3]] cba"},
      {"{{ 1 | nothing }}", "error: line 1 of the chat template: No filter named 'nothing'."},
      {"{% if n %}{{ 1 | nothing }}{% endif %}ok", "ok"},
      {"{{ n | length }}", "error: line 1 of the chat template: object of type 'NoneType' has no len()"},
  });
}

TEST(JinjaTemplate, TestsAndMethods) {
  Check({
      {"{{ x is defined }} {{ n is none }} {{ 's' is string }} {{ d is mapping }} {{ l is sequence }} {{ t is boolean "
       "}} {{ t is number }}",
       "False True True True True True True"},
      {"{{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ i is in [5] }} {{ i is not string }} {{ 1.0 is integer }} {{ 's' is "
       "iterable }}",
       "True True True True False True"},
      {"{{ s.strip() }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a b c'.rsplit(' ', 1) }}|{{ "
       "'xxaxx'.strip('x') }}",
       "Hé|['a', 'b', '', 'c']|['a', 'b']|['a b', 'c']|a"},
      {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abcb'.find('b') }} {{ 'abcb'.rfind('b') }} "
       "{{ 'aXbX'.replace('X', '', 1) }}",
       "True True 1 3 abX"},
      {"{{ '{} {1} {a}'.format(1, 2, a=3) }}", "1 2 3"},
      {"{{ '{:>4}|{:.2f}|{a!r}'.format(1, 2.0, a='x') }}", "   1|2.00|'x'"},
      {"{{ d.get('b') }} {{ d.get('z', 9) }} {{ ', '.join(['a', 'b']) }} {{ 'Ab'.upper() }} {{ 'a\\nb'.splitlines() }}",
       "1 9 a, b AB ['a', 'b']"},
  });
}

TEST(JinjaTemplate, WhatDoesNotParseHasALine) {
  const std::vector<Case> kCases = {
      {"\n\n{% if x %}", "line 3"},
      {"{{ 1 + }}", "line 1 of the chat template: expected an expression, got '}}'"},
      {"a\n{{ x", "line 2 of the chat template: the template ends inside a tag"},
      {"{{ (1] }}", "unexpected ']'"},
      {"{# a", "Missing end of comment tag"},
      {"{% raw %}", "Missing end of raw directive"},
      {"{% include 'x' %}", "the tag 'include' is not supported in chat templates"},
      {"{% nonsense %}", "unknown tag 'nonsense'"},
      {"{% break %}", "outside of a loop"},
      {"{% set true = 1 %}", "can't assign to 'true'"},
      {"{{ 'a }}", "a string does not end"},
      {"{{ 99999999999999999999 }}", "more than 64 bits"},
      {"{{ '\\ud800' }}", "no character"},
      {"{% endfor %}", "unknown tag 'endfor'"},
      {"\xff", "not UTF-8"},
  };
  for (const Case& c : kCases) {
    const absl::StatusOr<Template> parsed = Template::Parse(c.source);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << c.source;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c.text)) << c.source;
  }
}

TEST(JinjaTemplate, NothingHangsOrEatsMemory) {
  Limits limits;
  limits.steps = 1'000'000;
  limits.live_bytes = 16 << 20;
  limits.output_bytes = 4 << 20;
  const std::string deep(100'000, '(');
  std::string sum = "1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  for (const std::string& source :
       {std::string("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        std::string("{% set ns = namespace(x='a') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
        std::string("{% set ns = namespace(x=[]) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
        std::string("{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                    "%}{{ ns.x }}"),
        std::string("{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                    "%}{{ ns.x | tojson }}"),
        std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
        std::string("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), std::string("{{ 'a' * 9999999999 }}"),
        std::string("{{ 'a'.center(9999999999) }}"), std::string("{{ ('a' * 9999999).replace('', 'b' * 99999) }}"),
        std::string("{{ [1] * 9999999999 }}"), std::string("{% for a in range(99999) %}{{ 'a' * 999 }}{% endfor %}"),
        "{{ " + deep + " }}", "{{ " + sum + " }}", "{{ [" + std::string(100'000, '[') + " }}",
        std::string("{{ range(999999999) }}"),
        std::string("{% for a in range(99999) %}{{ range(99999) | sort | length }}{% endfor %}")}) {
    EXPECT_THAT(Render(source, limits), HasSubstr("error: line ")) << source.substr(0, 100);
  }
}

TEST(JinjaTemplate, RenderingsBeginAnew) {
  const absl::StatusOr<Template> parsed =
      Template::Parse("{{ x is defined }}{% set x = 1 %}{% set ns = namespace(a=1) %}{{ ns.a }}");
  ASSERT_TRUE(parsed.ok());
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<Text> text =
        parsed->Render({}, {}, [](Environment&, Template::SetVariable) { return absl::OkStatus(); });
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(text->bytes(), "False1");
  }
}

// The template's bytes in brackets.
std::string Origins(std::string_view source) {
  const absl::StatusOr<Text> text = Run(source);
  if (!text.ok()) return std::string(text.status().message());
  std::string out;
  size_t at = 0;
  for (const TextSpan& span : text->template_spans()) {
    out +=
        text->bytes().substr(at, span.begin - at) + "[" + text->bytes().substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return out + text->bytes().substr(at);
}

TEST(JinjaTemplate, BytesKeepTheirOrigin) {
  const std::vector<Case> kCases = {
      {"a{{ o[0].r }}b", "[a]user[b]"},
      {"{{ '<|' + 'x' ~ '|>' }}", "[<|x|>]"},
      {"{{ '<' + o[0].r + '>' }}", "[<]user[>]"},
      {"{{ ('  ' + o[0].r + '  a ') | trim | upper }}", "USER[  A]"},
      {"{{ (o[0].r ~ 'XX').replace('s', 'TT').split('e')[1] }}", "r[XX]"},
      {"{{ o[0].r | replace('use', 'U') }}", "[U]r"},
      {"{{ ['a', o[0].r] | join('-') }}", "[a-]user"},
      {"{{ ['a', o[0].r] }}", "['[a]', 'user']"},
      {"{{ {'a': o[0].r} | tojson }}", R"({"[a]": "user"})"},
      {"{{ o[0].k }}{{ 1 }}{{ o[0].k + 1 }}{{ l | length }}", "2[1]3[3]"},
      {"{% set x %}a{{ o[0].r }}{% endset %}{{ x }}{% macro m(a) %}({{ a }}){% endmacro %}{{ m(o[0].r) }}",
       "[a]user[(]user[)]"},
      {"{{ '%s=%s' % ('a', o[0].r) }}{{ '{}:{}'.format(o[0].r, 'b') }}", "[a=]useruser[:b]"},
      {"{{ (o[0].r + 'ab')[1:6] }}{{ (o[0].r + 'ab')[::-1] }}", "ser[abba]resu"},
      {"{{ o[0].r * 2 + 'a' * 2 }}", "useruser[aa]"},
      {"{% for c in o[0].r + 'z' %}{{ c }}{% endfor %}", "user[z]"},
      {"{{ ('a\\n' + o[0].r) | indent(1) }}", "[a\n ]user"},
  };
  for (const Case& c : kCases) EXPECT_EQ(Origins(c.source), c.text) << c.source;
}

}  // namespace
}  // namespace sluice::engine::jinja
