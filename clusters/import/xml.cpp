/// Builds a tree from expat's events.
#include "clusters/import/xml.h"

#include <expat.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/printable.h"

namespace orrery::clusters {
namespace {

constexpr int kMostDepth = 64;
constexpr int kMostElements = 100'000;
constexpr std::ptrdiff_t kMostAttributes = 400'000;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

class XmlReader {
 public:
  explicit XmlReader(Lines& text) : text_(text), parser_(XML_ParserCreate("UTF-8"), XML_ParserFree) {
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &XmlReader::on_start, &XmlReader::on_end);
    XML_SetCharacterDataHandler(parser_.get(), &XmlReader::on_text);
    XML_SetEntityDeclHandler(parser_.get(), &XmlReader::on_entity);
  }

  std::optional<XmlElement> read() {
    const std::string_view all = text_.text();
    // expat collects all attributes of an element before its first callback, so they are counted ahead.
    if (std::count(all.begin(), all.end(), '=') > kMostAttributes) {
      text_.findings().error("E0302", {text_.findings().file(), 1, 1, 1},
                             fmt::format("more than {} attributes", kMostAttributes));
      return std::nullopt;
    }
    if (XML_Parse(parser_.get(), all.data(), static_cast<int>(all.size()), 1) == XML_STATUS_OK) return std::move(root_);
    if (!stopped_) report(all);
    return std::nullopt;
  }

 private:
  static XmlReader& self(void* user) { return *static_cast<XmlReader*>(user); }
  static void XMLCALL on_start(void* user, const XML_Char* name, const XML_Char** attributes) {
    self(user).start(name, attributes);
  }
  static void XMLCALL on_end(void* user, const XML_Char*) { self(user).open_.pop_back(); }
  static void XMLCALL on_text(void* user, const XML_Char* text, int length) {
    XmlReader& reader = self(user);
    if (!reader.open_.empty()) reader.open_.back()->text.append(text, static_cast<std::size_t>(length));
  }
  static void XMLCALL on_entity(void* user, const XML_Char* name, int, const XML_Char*, int, const XML_Char*,
                                const XML_Char*, const XML_Char*, const XML_Char*) {
    self(user).stop(fmt::format("the document declares an entity, {}", base::quoted(name)),
                    "no tool whose output is imported writes one");
  }

  [[nodiscard]] std::size_t offset() const { return static_cast<std::size_t>(XML_GetCurrentByteIndex(parser_.get())); }

  void stop(const std::string& message, const std::string& help) {
    if (stopped_) return;
    stopped_ = true;
    text_.findings().error("E0302", text_.at_byte(offset(), 1), message, help);
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  void start(const char* name, const char** attributes) {
    if (static_cast<int>(open_.size()) >= kMostDepth)
      return stop(fmt::format("elements are nested deeper than {} levels", kMostDepth), {});
    if (++elements_ > kMostElements) return stop(fmt::format("more than {} elements", kMostElements), {});
    XmlElement element;
    element.name = name;
    element.where = text_.at_byte(offset(), element.name.size() + 1);
    for (std::size_t i = 0; attributes[i] != nullptr; i += 2)
      // A value may contain character references such as `&#10;`, which the raw text check does not see.
      element.attributes.push_back({attributes[i], base::printable(attributes[i + 1]), element.where});
    place_values(element);
    if (open_.empty()) {
      root_ = std::move(element);
      open_.push_back(&*root_);
      return;
    }
    // The pointers in open_ stay valid: only the innermost element grows.
    open_.back()->children.push_back(std::move(element));
    open_.push_back(&open_.back()->children.back());
  }

  /// expat gives the place of an element, but not of its values; the tag is well-formed, so a short scan finds them.
  void place_values(XmlElement& element) const {
    const std::string_view all = text_.text();
    std::size_t at = offset() + 1 + element.name.size();
    for (XmlAttribute& attribute : element.attributes) {
      while (at < all.size() && is_space(all[at])) ++at;
      at = all.find('=', at);
      if (at == std::string_view::npos) return;
      ++at;
      while (at < all.size() && is_space(all[at])) ++at;
      const std::size_t end = at < all.size() ? all.find(all[at], at + 1) : std::string_view::npos;
      if (end == std::string_view::npos) return;
      attribute.where = text_.at_byte(at + 1, end - at - 1);
      at = end + 1;
    }
  }

  void report(std::string_view all) {
    const XML_Error error = XML_GetErrorCode(parser_.get());
    const bool cut = error == XML_ERROR_NO_ELEMENTS || error == XML_ERROR_UNCLOSED_TOKEN ||
                     error == XML_ERROR_UNCLOSED_CDATA_SECTION || error == XML_ERROR_PARTIAL_CHAR ||
                     (error == XML_ERROR_INVALID_TOKEN && offset() >= all.size());
    if (!cut) {
      text_.findings().error("E0302", text_.at_byte(offset(), 1),
                             fmt::format("not well-formed XML: {}", XML_ErrorString(error)),
                             "copy the dump again as the tool wrote it");
      return;
    }
    std::string message = "the file ends before its XML does";
    if (!open_.empty())
      message += fmt::format(", inside `<{}>` of line {}", open_.back()->name, open_.back()->where.line);
    text_.findings().error("E0302", text_.end(), message, "the dump was cut: write or copy it again");
  }

  Lines& text_;
  std::unique_ptr<XML_ParserStruct, void (*)(XML_Parser)> parser_;
  std::optional<XmlElement> root_;
  std::vector<XmlElement*> open_;
  int elements_ = 0;
  bool stopped_ = false;
};

}  // namespace

const XmlAttribute* XmlElement::find(std::string_view wanted) const {
  for (const XmlAttribute& attribute : attributes)
    if (attribute.name == wanted) return &attribute;
  return nullptr;
}

std::string_view XmlElement::value(std::string_view wanted) const {
  const XmlAttribute* attribute = find(wanted);
  return attribute ? std::string_view(attribute->value) : std::string_view();
}

std::optional<XmlElement> parse_xml(Lines& text) {
  return XmlReader(text).read();
}

std::string_view xml_root(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '<') return {};
  for (std::size_t at = first; at != std::string_view::npos;) {
    if (text.substr(at, 4) == "<!--") {
      const std::size_t end = text.find("-->", at + 4);
      at = end == std::string_view::npos ? end : text.find('<', end);
      continue;
    }
    const std::string_view rest = text.substr(at + 1);
    if (!rest.starts_with('?') && !rest.starts_with('!')) return rest.substr(0, rest.find_first_of(" \t\r\n/>"));
    at = text.find('<', at + 1);
  }
  return {};
}

}  // namespace orrery::clusters
