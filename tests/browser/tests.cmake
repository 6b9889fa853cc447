# The HTML report in headless Chromium. Skipped (77) where Chromium or libjs-vega is absent.
add_executable(make_sample_report ${CMAKE_CURRENT_SOURCE_DIR}/browser/make_sample_report.cpp)
target_link_libraries(make_sample_report PRIVATE reports_support orrery_flags)
target_compile_definitions(make_sample_report PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_test(NAME browser.report
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/browser/report_in_chromium $<TARGET_FILE:make_sample_report>)
set_tests_properties(browser.report PROPERTIES LABELS browser SKIP_RETURN_CODE 77 TIMEOUT 400)
