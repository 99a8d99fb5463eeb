// What the examples share that follow the communication patterns of a published set of programs (hotspot, nw, …): sizes by
// arguments, so that the same program is quick in a test and long in a measurement.
//
// Every such program takes NAME=VALUE arguments, and of those
//   check=0      leaves out the comparison with the CPU, which takes long for large sizes;
//   pace=N       waits for the device after each iteration, and then N microseconds more on the host, in the place of the time for
//                which a slower device would compute. The device is held meanwhile, and no processor is used.
#pragma once
#include <unistd.h>

#include <map>
#include <string>

#include "check.h"

// The program's arguments: whole numbers with names.
class Arguments {
    std::map<std::string, long> given;

  public:
    bool check = true;
    long pace = 0;

    Arguments(int argc, char** argv) {
        for (int i = 1; i < argc; i++) {
            const char* equals = strchr(argv[i], '=');
            char* end = nullptr;
            long value = equals ? strtol(equals + 1, &end, 10) : 0;
            REQUIRE(equals && equals[1] && !*end, "an argument is NAME=NUMBER, not %s", argv[i]);
            given[std::string(argv[i], size_t(equals - argv[i]))] = value;
        }
        check = take("check", 1, 0, 1);
        pace = take("pace", 0, 0, 60'000'000);
    }

    // The value of an argument, from `least` to `most`, and `usual` where it is not given.
    long take(const char* name, long usual, long least, long most) {
        auto found = given.find(name);
        if (found == given.end()) return usual;
        long value = found->second;
        REQUIRE(value >= least && value <= most, "%s is from %ld to %ld, not %ld", name, least, most, value);
        given.erase(found);
        return value;
    }

    // To be called after the last `take`: no argument may be left over.
    void end() const { REQUIRE(given.empty(), "there is no argument %s", given.begin()->first.c_str()); }

    // The end of an iteration.
    void iterated() const {
        if (!pace) return;
        CHECK(cudaDeviceSynchronize());
        usleep(pace);
    }
};

// The last line of such a program: it says where nothing was compared.
inline int finished(const Arguments& arguments, const char* what) {
    return ok("%s%s", what, arguments.check ? "" : ", not compared with the CPU");
}

// Whether two results agree to a relative or absolute difference of `limit`.
inline bool agree(double a, double b, double limit) {
    return std::fabs(a - b) <= limit * std::max(1.0, std::max(std::fabs(a), std::fabs(b)));
}
