# pando_data_files(TARGET SOURCE_FOLDER FOLDER): the .json and .py files of SOURCE_FOLDER lie in FOLDER beside the programs, so
# that they are found from any folder, and are installed into share/pando/FOLDER.
function(pando_data_files target source folder)
  file(GLOB files CONFIGURE_DEPENDS ${source}/*.json ${source}/*.py)
  set(copies ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${folder})
  add_custom_command(OUTPUT ${copies}/.copied
    COMMAND ${CMAKE_COMMAND} -E make_directory ${copies}
    COMMAND ${CMAKE_COMMAND} -E copy ${files} ${copies}
    COMMAND ${CMAKE_COMMAND} -E touch ${copies}/.copied
    DEPENDS ${files}
    VERBATIM)
  add_custom_target(pando_${folder} DEPENDS ${copies}/.copied)
  add_dependencies(${target} pando_${folder})
  install(FILES ${files} DESTINATION ${CMAKE_INSTALL_DATADIR}/pando/${folder})
endfunction()
