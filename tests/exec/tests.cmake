# The matrix of ways to split against the serial run (scripts/verify-matrix). The suite runs each way alone.
if(ORRERY_HAVE_CPU_BACKEND)
  add_executable(equal_matrix ${CMAKE_CURRENT_LIST_DIR}/equal_matrix.cpp)
  target_link_libraries(equal_matrix PRIVATE exec_support orrery_flags)
  target_compile_definitions(equal_matrix PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME slow.every_axis_equals_serial COMMAND equal_matrix --alone)
  set_tests_properties(slow.every_axis_equals_serial PROPERTIES LABELS slow RUN_SERIAL ON TIMEOUT 600)
endif()
# What runs in threads, for ThreadSanitizer (scripts/sanitize thread): the rest of the room's tests would take it hours.
if(ORRERY_HAVE_CPU_BACKEND AND ORRERY_SANITIZE STREQUAL thread)
  foreach(name thread_transport cpu_pool communication waiter copies checkpoint)
    list(APPEND threaded ${CMAKE_CURRENT_LIST_DIR}/${name}_test.cpp)
  endforeach()
  list(APPEND threaded ${CMAKE_CURRENT_LIST_DIR}/../sim/search/search_test.cpp)
  add_executable(test_threads ${threaded})
  target_link_libraries(test_threads PRIVATE orrery::sim exec_support GTest::gmock GTest::gtest_main orrery_flags)
  target_compile_definitions(test_threads PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()

# The CUDA backend's cases, by which cpu_written_test.cpp holds the table of operators to the CPU backend.
if(ORRERY_HAVE_CPU_BACKEND)
  target_link_libraries(test_exec PRIVATE operator_cases)
endif()
