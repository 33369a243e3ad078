# How many tests of a set passed, its inner sets included.
function count_passed(set)
    inner = filter(result -> result isa Test.DefaultTestSet, set.results)
    return set.n_passed + mapreduce(count_passed, +, inner; init = 0)
end
