module house.test

go 1.26
