# End to end through the binary (label cli).
include(GoogleTest)
file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
add_executable(test_apps ${cli_sources})
target_link_libraries(test_apps PRIVATE orrery::sim orrery_flags GTest::gtest GTest::gmock GTest::gtest_main)
target_compile_definitions(test_apps PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                           ORRERY_BUILD_DIR="${PROJECT_BINARY_DIR}" ORRERY_BINARY="$<TARGET_FILE:orrery>")
orrery_unity(test_apps)
add_dependencies(test_apps orrery)
if(ORRERY_HAVE_WORKER)
  add_dependencies(test_apps orrery-worker)
endif()
# A driver and a management library that `probe` finds where the tests say, and an allocator that refuses.
foreach(fake cuda nvml fail_malloc)
  add_library(fake_${fake} SHARED ${CMAKE_CURRENT_LIST_DIR}/fakes/${fake}.cpp)
  target_link_libraries(fake_${fake} PRIVATE orrery_flags)
  set_target_properties(fake_${fake} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fakes PREFIX "")
  add_dependencies(test_apps fake_${fake})
endforeach()
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME libcuda SUFFIX ".so.1")
set_target_properties(fake_nvml PROPERTIES OUTPUT_NAME libnvidia-ml SUFFIX ".so.1")
target_compile_definitions(test_apps PRIVATE ORRERY_FAKES="${PROJECT_BINARY_DIR}/fakes"
                           ORRERY_FAIL_MALLOC="$<TARGET_FILE:fake_fail_malloc>")
# A minute of measuring.
gtest_discover_tests(test_apps TEST_PREFIX slow. TEST_FILTER "SlowProbe*"
                     PROPERTIES LABELS slow TIMEOUT 300 RUN_SERIAL ON)
# What starts ranks has the cores for itself.
gtest_discover_tests(test_apps TEST_PREFIX cli. TEST_FILTER "-Loop*:Slow*" PROPERTIES LABELS cli TIMEOUT 300)
gtest_discover_tests(test_apps TEST_PREFIX cli. TEST_FILTER "Loop*" PROPERTIES LABELS cli TIMEOUT 600 PROCESSORS 2)
add_test(NAME cli.an_installed_tree_works COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_test.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cli.an_installed_tree_works PROPERTIES LABELS cli)
# The pages of reports/gallery/: that they are made the same each time; with the label `long` that all of them are those
# that this build makes.
if(EXISTS /usr/share/javascript/vega)
  add_test(NAME cli.the_gallery_is_made_the_same_each_time
           COMMAND ${CMAKE_CURRENT_LIST_DIR}/gallery_test.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(cli.the_gallery_is_made_the_same_each_time PROPERTIES LABELS cli)
  add_test(NAME long.the_gallery_is_what_this_build_makes
           COMMAND ${PROJECT_SOURCE_DIR}/scripts/gallery --check --build ${PROJECT_BINARY_DIR})
  set_tests_properties(long.the_gallery_is_what_this_build_makes PROPERTIES LABELS long TIMEOUT 1800)
endif()
