# A stand-in for BFloat16s: its type.
module BFloat16s

primitive type BFloat16 16 end

end
