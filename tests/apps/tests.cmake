# End to end through the binary (label cli).
include(GoogleTest)
file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
add_executable(test_apps ${cli_sources})
target_link_libraries(test_apps PRIVATE orrery_flags GTest::gtest GTest::gmock GTest::gtest_main)
target_compile_definitions(test_apps PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                           ORRERY_BUILD_DIR="${PROJECT_BINARY_DIR}" ORRERY_BINARY="$<TARGET_FILE:orrery>")
add_dependencies(test_apps orrery)
if(ORRERY_HAVE_WORKER)
  add_dependencies(test_apps orrery-worker)
endif()
# What starts ranks has the cores for itself.
gtest_discover_tests(test_apps TEST_PREFIX cli. TEST_FILTER "-Loop*" PROPERTIES LABELS cli TIMEOUT 300)
gtest_discover_tests(test_apps TEST_PREFIX cli. TEST_FILTER "Loop*" PROPERTIES LABELS cli TIMEOUT 600 PROCESSORS 2)
add_test(NAME cli.an_installed_tree_works COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_test.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cli.an_installed_tree_works PROPERTIES LABELS cli)
