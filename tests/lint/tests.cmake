# The shape of the code and of the texts; and that the checks themselves find what is planted.
function(orrery_lint name script)
  add_test(NAME lint.${name} COMMAND ${script})
  set_tests_properties(lint.${name} PROPERTIES LABELS lint)
endfunction()

orrery_lint(includes ${PROJECT_SOURCE_DIR}/scripts/check-includes)
orrery_lint(docs ${PROJECT_SOURCE_DIR}/scripts/check-docs)
orrery_lint(includes_find_what_is_planted ${CMAKE_CURRENT_LIST_DIR}/check_includes_test.sh)
orrery_lint(docs_find_what_is_planted ${CMAKE_CURRENT_LIST_DIR}/check_docs_test.sh)
find_program(CLANG_FORMAT clang-format)
if(CLANG_FORMAT)
  orrery_lint(format ${PROJECT_SOURCE_DIR}/scripts/check-format)
endif()
