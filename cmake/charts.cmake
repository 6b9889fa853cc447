# Embeds the templates of charts in the library `reports`, so that an installed command needs no file of them. Included
# with the project it adds the rule; as a script (-DFILES, -DTO) it writes the source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(rows "")
  foreach(file IN LISTS FILES)
    file(READ ${file} text)
    get_filename_component(name ${file} NAME)
    string(APPEND rows "      {\"${name}\", R\"chart(${text})chart\"},\n")
  endforeach()
  file(WRITE ${TO} "/// The files of reports/html/charts/, written by cmake/charts.cmake.
#include \"reports/html/chart_template.h\"

namespace orrery::reports::html {

const std::vector<ChartFile>& chart_files() {
  static const std::vector<ChartFile> kFiles{
${rows}  };
  return kFiles;
}

}  // namespace orrery::reports::html
")
  return()
endif()

set(source ${PROJECT_BINARY_DIR}/chart_files.cpp)
file(GLOB templates CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/reports/html/charts/*.json)  # sorted
add_custom_command(
  OUTPUT ${source}
  COMMAND ${CMAKE_COMMAND} "-DFILES=${templates}" -DTO=${source} -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${templates} ${CMAKE_CURRENT_LIST_FILE}
  COMMENT "Embedding the templates of charts"
  VERBATIM)
target_sources(orrery_reports PRIVATE ${source})
