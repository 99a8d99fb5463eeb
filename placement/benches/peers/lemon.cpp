// Solves a DIMACS minimum-cost-flow problem with LEMON, three times, and prints the best times.
// Arguments: FILE network-simplex|cost-scaling
#include <lemon/cost_scaling.h>
#include <lemon/network_simplex.h>
#include <lemon/static_graph.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

// Processor time.
struct Clock {
    static double now() { return double(std::clock()) * 1e3 / CLOCKS_PER_SEC; }
};

struct Problem {
    int nodes = 0;
    std::vector<long long> supply;
    // In the order of the file.
    std::vector<int> tail, head;
    std::vector<long long> lower, capacity, cost;
};

static Problem read(const char *name) {
    Problem problem;
    std::FILE *file = std::fopen(name, "r");
    if (!file) {
        std::perror(name);
        std::exit(1);
    }
    char line[256];
    while (std::fgets(line, sizeof line, file)) {
        long long a, b, c, d, e;
        if (std::sscanf(line, "p min %lld %lld", &a, &b) == 2) {
            problem.nodes = int(a);
            problem.supply.assign(a, 0);
        } else if (std::sscanf(line, "n %lld %lld", &a, &b) == 2) {
            problem.supply[a - 1] = b;
        } else if (std::sscanf(line, "a %lld %lld %lld %lld %lld", &a, &b, &c, &d, &e) == 5) {
            problem.tail.push_back(int(a - 1));
            problem.head.push_back(int(b - 1));
            problem.lower.push_back(c);
            problem.capacity.push_back(d);
            problem.cost.push_back(e);
        }
    }
    std::fclose(file);
    return problem;
}

template <class Algorithm> static void measure(const Problem &problem) {
    using Graph = lemon::StaticDigraph;
    using Value = long long;
    double best_solve = 1e300, best_all = 1e300;
    Value optimum = 0;
    // A static graph wants its arcs sorted by tail. Sorting is not part of the time.
    std::vector<int> order(problem.tail.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = int(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return problem.tail[a] < problem.tail[b]; });
    std::vector<std::pair<int, int>> arcs;
    for (int i : order) arcs.emplace_back(problem.tail[i], problem.head[i]);
    for (int round = 0; round < 3; round++) {
        auto start = Clock::now();
        Graph graph;
        graph.build(problem.nodes, arcs.begin(), arcs.end());
        Graph::ArcMap<Value> lower(graph), upper(graph), cost(graph);
        Graph::NodeMap<Value> supply(graph);
        for (size_t i = 0; i < order.size(); i++) {
            Graph::Arc arc = graph.arc(int(i));
            Value capacity = problem.capacity[order[i]];
            lower[arc] = problem.lower[order[i]];
            upper[arc] = capacity < 0 ? 1000000000 : capacity;
            cost[arc] = problem.cost[order[i]];
        }
        for (int i = 0; i < problem.nodes; i++) supply[graph.node(i)] = problem.supply[i];
        Algorithm algorithm(graph);
        algorithm.lowerMap(lower).upperMap(upper).costMap(cost).supplyMap(supply);
        auto built = Clock::now();
        auto status = algorithm.run();
        auto end = Clock::now();
        if (status != Algorithm::OPTIMAL) {
            std::printf("%s\n", status == Algorithm::INFEASIBLE ? "infeasible" : "unbounded");
            return;
        }
        optimum = algorithm.template totalCost<Value>();
        best_solve = std::min(best_solve, end - built);
        best_all = std::min(best_all, end - start);
    }
    std::printf("optimum: %lld\ntime: %.3f ms\ntime with building: %.3f ms\n", optimum, best_solve, best_all);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: lemon FILE network-simplex|cost-scaling\n");
        return 2;
    }
    Problem problem = read(argv[1]);
    using Graph = lemon::StaticDigraph;
    if (!std::strcmp(argv[2], "network-simplex")) {
        measure<lemon::NetworkSimplex<Graph, long long, long long>>(problem);
    } else if (!std::strcmp(argv[2], "cost-scaling")) {
        measure<lemon::CostScaling<Graph, long long, long long>>(problem);
    } else {
        std::fprintf(stderr, "unknown algorithm %s\n", argv[2]);
        return 2;
    }
}
