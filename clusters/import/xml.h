#pragma once
/// A small XML tree with the place of every element and attribute. expat checks that it is well-formed.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clusters/import/text.h"

namespace orrery::clusters {

struct XmlAttribute {
  std::string name, value;
  base::Location where;  ///< of the value
};

struct XmlElement {
  std::string name;
  base::Location where;
  std::vector<XmlAttribute> attributes;
  std::vector<XmlElement> children;
  std::string text;  ///< between its tags, without the children's text

  [[nodiscard]] const XmlAttribute* find(std::string_view name) const;
  /// The attribute's value; empty when there is none.
  [[nodiscard]] std::string_view value(std::string_view name) const;
};

/// The root, or nothing after E0302 at the first error. Entities may not be declared; at most 64 levels, 100,000
/// elements and 400,000 attributes. Values are printable (base/printable.h).
[[nodiscard]] std::optional<XmlElement> parse_xml(Lines& text);

/// Name of the first element, found without parsing further; empty when the text is not XML.
[[nodiscard]] std::string_view xml_root(std::string_view text);

}  // namespace orrery::clusters
