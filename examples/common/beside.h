// Files that lie beside the program.
#pragma once
#include <unistd.h>

#include <string>

#include "check.h"

// The path of such a file.
static std::string beside(const char* file) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    REQUIRE(length > 0, "where is this program?");
    std::string program(path, (size_t)length);
    return program.substr(0, program.rfind('/') + 1) + file;
}
